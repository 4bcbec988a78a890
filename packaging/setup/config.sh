# shellcheck shell=sh
# The settings the set-up needs, read from the daemon's own configuration file, and where the
# set-up keeps its records. Sourced by skerry-setup; every variable here is read by the other
# parts. The file is a plain block mapping: `key: value`, and one level below `network:` and
# `pool:`. The daemon checks it in full; this reads the few keys it needs and refuses what it
# could misread.

# config_get KEY DEFAULT: KEY is `name` or `group.name`
config_get()
{
	awk -v want="$1" -v value="$2" '
		function unquote(v)
		{
			if (v ~ /^".*"$/ || v ~ /^\047.*\047$/)
				return substr(v, 2, length(v) - 2)
			sub(/[ \t]+#.*$/, "", v)
			sub(/^#.*$/, "", v)
			return v
		}
		/^[ \t]*(#|$)/ || /^---/ { next }
		/^[^ \t]/ { group = "" }
		{
			indented = $0 ~ /^[ \t]/
			line = $0
			sub(/^[ \t]+/, "", line)
			sub(/[ \t\r]+$/, "", line)
			at = index(line, ":")
			if (!at)
				next
			key = substr(line, 1, at - 1)
			rest = substr(line, at + 1)
			sub(/^[ \t]+/, "", rest)
			rest = unquote(rest)
			if (!indented && rest == "")
				group = key
			if ((indented && group != "" ? group "." key : key) == want && rest != "")
				value = rest
		}
		END { print value }' "$config"
}

# A path that is removed or mounted on by root: absolute, clean, not a top directory.
config_path()
{
	case "$2" in
	*/../* | */.. | */./* | */. | *//* | *[!A-Za-z0-9/._@+-]*)
		die "'$1' in $config: '$2' is not a plain path" ;;
	/*/?*) ;;
	*) die "'$1' in $config: '$2' is not an absolute path at least two names deep" ;;
	esac
}

# Unsigned decimal, short enough for shell arithmetic.
config_number()
{
	case "$2" in
	'' | *[!0-9]* | ????????????*) die "'$1' in $config: '$2' is not a number" ;;
	esac
}

# How many sandboxes the address range holds, which bounds the ids in use: the keeper keeps 17
# addresses back. One range of ids more belongs to the unpacking of images.
config_slots()
{
	bits=${ipv4#*/}
	config_number "the length of network.ipv4" "$bits"
	case "$bits" in
	[89] | 1[0-9] | 2[0-6]) ;;
	*) die "'network.ipv4' in $config: /8 to /26, not /$bits" ;;
	esac
	by_addresses=$(((1 << (32 - bits)) - 17))
	by_ids=$(((4294967295 - id_base) / 65536 - 1))
	echo $((by_addresses < by_ids ? by_addresses : by_ids))
}

config_load()
{
	[ -f "$config" ] || die "no configuration at $config: run 'skerry-setup prepare' first"
	if grep -Eq '^(network|pool)[[:space:]]*:[[:space:]]*\{' "$config"; then
		die "$config: write 'network' and 'pool' with their keys on lines of their own"
	fi
	instance=$(config_get instance skerry)
	state_dir=$(config_get state_dir /var/lib/skerry)
	run_dir=$(config_get run_dir /run/skerry)
	user=$(config_get user skerry)
	group=$(config_get group "$user")
	listen=$(config_get listen 127.0.0.1:7070)
	id_base=$(config_get id_base 1879048192)
	ipv4=$(config_get network.ipv4 10.213.0.0/16)
	ipv6=$(config_get network.ipv6 "")
	pool_path=$(config_get pool.path "")
	pool_dir=$(config_get pool.dir "")

	case "$instance" in
	'' | *[!a-z0-9]* | [0-9]* | ?????????*)
		die "'instance' in $config: '$instance' is not 1 to 8 of a-z and 0-9, letter first" ;;
	esac
	for word in "$user" "$group"; do
		case "$word" in
		'' | -* | *[!a-z0-9_-]*) die "$config: '$word' is no name for a service user" ;;
		root) die "$config: the daemon does not run as root" ;;
		esac
	done
	config_path state_dir "$state_dir"
	config_path run_dir "$run_dir"
	config_path pool.dir "$pool_dir"
	config_path pool.path "$pool_path"
	config_number id_base "$id_base"
	slots_max=$(config_slots)

	conf_dir=$(dirname "$config")
	record_dir=$conf_dir/setup       # what was there before, for purge
	sv_dir=$conf_dir/sv              # services where systemd is not PID 1
	render_dir=$run_dir/conf         # configurations the daemon writes for the others
	private_dir=$run_dir/setup       # pid files and locks of the set-up
	log_dir=/var/log/$instance
	cache_dir=/var/cache/$instance
	pool_parent=$(dirname "$pool_dir")
}
