# shellcheck shell=sh
# sandboxes-down: ends every sandbox and removes what the keeper made in the kernel, without the
# keeper: after it was killed, or when all goes. Everything here is found by the instance's name or
# its address ranges, never by guess. Sourced by skerry-setup.

# The instance's group in each cgroup hierarchy that is mounted, v1 and v2.
cgroup_dirs()
{
	awk '{
		for (i = 7; i <= NF && $i != "-"; i++)
			;
		if ($(i + 1) == "cgroup" || $(i + 1) == "cgroup2")
			print $5
	}' /proc/self/mountinfo | while read -r mount; do
		[ ! -d "$mount/$instance" ] || echo "$mount/$instance"
	done
}

cgroup_pids()
{
	for dir in $(cgroup_dirs); do
		find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null
	done | sort -un | grep -vx 0 || :
}

# Processes may fork while we kill: until none is left, ten seconds at most.
cgroups_kill()
{
	for round in 1 2 3 4 5 6 7 8 9 10; do
		for dir in $(cgroup_dirs); do
			[ ! -e "$dir/cgroup.kill" ] || echo 1 >"$dir/cgroup.kill" || :
		done
		pids=$(cgroup_pids)
		[ "$pids" ] || return 0
		for pid in $pids; do
			kill -KILL "$pid" 2>/dev/null || :
		done
		sleep "0.$((round / 2 + 1))"
	done
	for pid in $(cgroup_pids); do
		# a zombie is gone for all but its parent
		case "$(sed -n 's/^State:[ \t]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)" in
		'' | Z | X) ;;
		*) die "process $pid of the sandboxes does not end" ;;
		esac
	done
}

# A group is busy for a moment after its last process.
cgroups_remove()
{
	for dir in $(cgroup_dirs); do
		for round in 1 2 3 4 5; do
			find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || :
			[ -d "$dir" ] || break
			sleep "0.$round"
		done
		[ ! -d "$dir" ] || warn "'$dir' stays"
	done
}

links_remove()
{
	ip -o link show 2>/dev/null | awk -F': ' '{ sub(/@.*/, "", $2); print $2 }' |
		while read -r link; do
			case "$link" in
			"$instance-"*) ip link delete "$link" 2>/dev/null || : ;;
			esac
		done
}

# Gateway addresses lie on the loopback link, inside our ranges.
addresses_remove()
{
	for range in "$ipv4" "$ipv6"; do
		[ "$range" ] || continue
		ip -o address show dev lo | awk '{ print $4 }' |
			awk -v want="$range" -f "$here/setup/overlap.awk" |
			while read -r address; do
				ip address delete "$address" dev lo
			done
	done
}

# Whatever is mounted below a directory of ours, innermost first; not the directory itself.
mounts_below_remove()
{
	awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
		while read -r mount; do
			umount -- "$mount" || umount -l -- "$mount"
		done
}

kernel_down()
{
	cgroups_kill
	cgroups_remove
	nft delete table inet "$instance" 2>/dev/null || :
	links_remove
	addresses_remove
	mounts_below_remove "$run_dir"
	mounts_below_remove "$pool_dir"
}
