# shellcheck shell=sh
# prepare: everything below the daemons that is neither pool nor process. Sourced by skerry-setup.

# A random ULA prefix of 48 bits (RFC 4193).
random_ula()
{
	od -An -N5 -tx1 /dev/urandom |
		awk '{ printf "fd%s:%s%s:%s%s::/48\n", $1, $2, $3, $4, $5 }'
}

# The first configuration. The address range is drawn once and stays: sandboxes carry it.
config_make()
{
	install -d -m 755 "$(dirname "$config")"
	skerryd=${SKERRYD:-$(program skerryd 2>/dev/null || echo skerryd)}
	sed "s|@IPV6@|$(random_ula)|; s|@SKERRYD@|$skerryd|" "$here/setup/skerry.yaml" >"$config.new"
	chmod 644 "$config.new"
	sync "$config.new"
	mv "$config.new" "$config"
	say "wrote $config"
}

# A range must have its own 48 bits also where the operator wrote the file without one.
config_add_ipv6()
{
	if grep -q '^network:' "$config"; then
		sed "s|^network:.*|&\n  ipv6: $(random_ula)|" "$config" >"$config.new"
	else
		{
			cat "$config"
			printf '\nnetwork:\n  ipv6: %s\n' "$(random_ula)"
		} >"$config.new"
	fi
	chmod --reference="$config" "$config.new"
	sync "$config.new"
	mv "$config.new" "$config"
}

# --- conflicts with what the host has ---------------------------------------------------------

# Ids of sandboxes must not be anybody else's: not a subordinate range, not a user.
refuse_id_overlap()
{
	id_end=$((id_base + (slots_max + 1) * 65536))
	[ $((id_base / 65536)) -gt 0 ] || die "'id_base' in $config: $id_base is below 65536"
	[ $((id_base % 65536)) = 0 ] ||
		die "'id_base' in $config: $id_base is not a multiple of 65536"
	for file in /etc/subuid /etc/subgid; do
		[ -f "$file" ] || continue
		clash=$(awk -F: -v low="$id_base" -v high="$id_end" '
			$2 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ && $2 + 0 < high + 0 &&
			$2 + $3 > low + 0 { print; exit }' "$file")
		[ -z "$clash" ] || die "ids $id_base-$((id_end - 1)) overlap '$clash' of $file:" \
			"choose another 'id_base' in $config"
	done
	for db in passwd group; do
		clash=$(getent "$db" | awk -F: -v low="$id_base" -v high="$id_end" '
			$3 + 0 >= low + 0 && $3 + 0 < high + 0 { print $1; exit }')
		[ -z "$clash" ] || die "ids $id_base-$((id_end - 1)) hold '$clash' of $db:" \
			"choose another 'id_base' in $config"
	done
}

# Every prefix the host uses, a line each: routes of all tables, then addresses. Left out: links of
# our own and the gateway, which the keeper put on the loopback link.
host_prefixes()
{
	ip -o "-$1" route show table all 2>/dev/null | awk -v own="$instance" '
		{
			text = $0
			if ($1 ~ /^(unreachable|blackhole|prohibit|broadcast|multicast|anycast|local|throw|unicast)$/)
				$1 = ""
			$0 = $0
			link = ""
			for (i = 2; i < NF; i++)
				if ($i == "dev")
					link = $(i + 1)
			if ($1 == "default" || link == "lo" || index(link, own "-") == 1)
				next
			print $1, "(route: " text ")"
		}'
	ip -o "-$1" address show 2>/dev/null | awk -v own="$instance" '
		$2 != "lo" && index($2, own "-") != 1 { print $4, "(address of " $2 ")" }'
}

# refuse_net_overlap FAMILY KEY PREFIX
refuse_net_overlap()
{
	clash=$(host_prefixes "$1" | awk -v want="$3" -f "$here/setup/overlap.awk" | head -n 1)
	[ -z "$clash" ] ||
		die "'$2' in $config: $3 overlaps $clash of this host: choose another range"
}

# Whoever listens where the API is to answer, HAProxy of ours apart: `PROCESS,pid=N` or nothing.
listen_holder()
{
	port=${listen##*:}
	host=${listen%:*}
	ss -Hltnp "sport = :$port" 2>/dev/null | while read -r _ _ _ at _ process; do
		case "${at%:*}" in
		"$host" | '*' | 0.0.0.0 | '[::]') ;;
		*)
			case "$host" in
			'' | '*' | 0.0.0.0 | '[::]') ;;
			*) continue ;;
			esac
			;;
		esac
		pid=$(echo "$process" | sed -n 's/.*pid=\([0-9]*\).*/\1/p')
		! tr '\0' ' ' 2>/dev/null <"/proc/${pid:-none}/cmdline" |
			grep -qF " $render_dir/haproxy.cfg " || continue
		echo "$process" | sed -n 's/^users:(("\([^"]*\)",pid=\([0-9]*\),.*/\1, process \2/p' |
			grep . || echo "a process not to be seen from here"
		break
	done
}

refuse_listen()
{
	holder=$(listen_holder)
	[ -z "$holder" ] || die "'listen' in $config: $listen is taken by $holder:" \
		"choose another port, or end it"
}

# --- users and directories -------------------------------------------------------------------

# record NAME LINE: remember once what purge has to undo
record()
{
	install -d -m 755 "$record_dir"
	touch "$record_dir/$1"
	grep -qxF -- "$2" "$record_dir/$1" || echo "$2" >>"$record_dir/$1"
}

# The account files are locked while another tool writes them, and for a while after one was killed.
account()
{
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		message=$("$@" 2>&1) && return 0
		case "$message" in
		*lock*) sleep 0.5 ;;
		*) break ;;
		esac
	done
	die "$message"
}

make_user()
{
	if ! getent group "$group" >/dev/null; then
		record groups "$group"
		account groupadd --system "$group"
	fi
	if ! getent passwd "$user" >/dev/null; then
		record users "$user"
		account useradd --system --no-create-home --home-dir "$state_dir" \
			--shell /usr/sbin/nologin --gid "$group" "$user"
	fi
	[ "$(id -u "$user")" != 0 ] || die "user '$user' of $config is root"
}

# make_dir PATH MODE OWNER: not through a link somebody left there, and never by taking over a
# directory that holds other things: purge removes whole what is recorded here.
make_dir()
{
	[ ! -L "$1" ] || die "'$1' is a symbolic link"
	if ! grep -qsxF -- "$1" "$record_dir/dirs"; then
		if [ -d "$1" ] && [ -n "$(ls -A "$1")" ]; then
			die "'$1' is not empty and was not made by this set-up: name another in $config"
		fi
		record dirs "$1"
	fi
	[ -d "$1" ] || install -d -m 700 "$1"
	chown -h "$3" "$1"
	chmod "$2" "$1"
}

# State and sockets belong to the daemon; what root trusts lies in directories of root's own: the
# daemon must not be able to swap a path that root opens. The run directory is root's and sticky for
# the same reason: the daemon adds its socket and cannot replace the keeper's, whose directories
# are there before the daemon is.
make_dirs()
{
	make_dir "$state_dir" 750 "$user:$group"
	make_dir "$run_dir" 1775 "root:$group"
	install -d -m 755 -o root -g root "$render_dir"
	install -d -m 700 -o root -g root "$private_dir" "$run_dir/keeper" "$run_dir/stage"
	install -d -m 750 -o root -g "$group" "$run_dir/agents"
	make_dir "$pool_parent" 700 root:root
	make_dir "$log_dir" 750 "root:$group"
}

# --- sysctls ----------------------------------------------------------------------------------

# Host-wide, so counted: the values from before the first instance come back with the last one.
# In /run, because a reboot brings the host's own values back too.
sysctl_dir=/run/skerry-sysctl

sysctl_set()
{
	file=/proc/sys/$1
	[ -e "$file" ] || return 0
	if ! grep -qs "^$1=" "$sysctl_dir/former"; then
		echo "$1=$(cat "$file")" >>"$sysctl_dir/former"
	fi
	[ "$(cat "$file")" = "$2" ] || echo "$2" >"$file" || die "cannot set $1 to $2"
}

sysctl_least()
{
	[ ! -e "/proc/sys/$1" ] || [ "$(cat "/proc/sys/$1")" -ge "$2" ] || sysctl_set "$1" "$2"
}

sysctls_up()
{
	install -d -m 755 "$sysctl_dir/instances"
	(
		flock 9
		touch "$sysctl_dir/instances/$instance"
		# A forwarding host ignores router advertisements unless told otherwise, and would
		# lose the IPv6 route it lives by.
		ip -6 route show proto ra 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' |
			sort -u | while read -r link; do
			sysctl_set "net/ipv6/conf/$link/accept_ra" 2
		done
		sysctl_set net/ipv4/ip_forward 1
		# what all sandboxes share must not be what one of them can use up
		sysctl_least kernel/pty/max 65536
		sysctl_least kernel/pid_max 4194304
		sysctl_set net/ipv6/conf/all/forwarding 1
	) 9>"$sysctl_dir/lock"
}

sysctls_down()
{
	[ -d "$sysctl_dir" ] || return 0
	(
		flock 9
		rm -f "$sysctl_dir/instances/$instance"
		[ -z "$(ls "$sysctl_dir/instances")" ] || exit 0
		while IFS='=' read -r name value; do
			file=/proc/sys/$name
			[ ! -e "$file" ] || echo "$value" >"$file" || warn "$name stays changed"
		done <"$sysctl_dir/former"
		rm -rf "$sysctl_dir"
	) 9>"$sysctl_dir/lock"
}

prepare()
{
	[ -f "$config" ] || config_make
	config_load
	if [ -z "$ipv6" ]; then
		config_add_ipv6
		config_load
	fi
	refuse_id_overlap
	refuse_net_overlap 4 network.ipv4 "$ipv4"
	refuse_net_overlap 6 network.ipv6 "$ipv6"
	refuse_listen
	make_user
	make_dirs
	sysctls_up
}
