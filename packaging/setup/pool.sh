# shellcheck shell=sh
# pool-up and pool-down: the btrfs file system that holds images and disks. Sourced by skerry-setup.
#
# What must never happen: making a file system over somebody's data, and having one file on two
# loop devices (btrfs mounts both and loses writes without a word). Hence: mkfs only on a file this
# script has just made or on a device without any signature, everything under one lock, and a loop
# device is looked for by the inode of its backing file before one is made.

# Also serves the daemons' tests, so the lock lies beside the pool and not in one place for all.
pool_lock()
{
	exec 8>"$pool_parent/.lock"
	flock 8
}

# blkid tells by its status: 0 a signature, 2 none
pool_signature()
{
	blkid -p -o export "$1" 2>/dev/null | sed -n 's/^\(TYPE\|PTTYPE\)=//p' | head -n 1
}

pool_uuid()
{
	blkid -p -o value -s UUID "$1"
}

pool_is_mounted()
{
	mountpoint -q "$pool_dir"
}

# min(64 GiB, 80 % of what is free), sparse
pool_default_size()
{
	df --output=avail -B1 "$1" | awk '
		NR == 2 {
			n = $1 * 0.8
			max = 64 * 1024 * 1024 * 1024
			if (n > max)
				n = max
			printf "%.0f\n", n - n % 1048576
		}'
}

# Made under another name and renamed when whole: a file of the final name is a file system.
pool_make_file()
{
	dir=$(dirname "$pool_path")
	[ -d "$dir" ] || die "no directory '$dir'"
	size=${POOL_SIZE:-$(pool_default_size "$dir")}
	size=$(numfmt --from=iec -- "$size" 2>/dev/null) ||
		die "POOL_SIZE '$POOL_SIZE' is no size: bytes, or a number with K, M, G or T"
	[ "$size" -ge 1073741824 ] ||
		die "only $((size / 1048576)) MiB for the pool in '$dir': 1 GiB is the least"
	rm -f "$pool_path.new"
	(umask 077 && truncate -s "$size" "$pool_path.new")
	mkfs.btrfs -q -L "$instance" "$pool_path.new" >/dev/null
	sync "$pool_path.new"
	mv "$pool_path.new" "$pool_path"
	sync "$dir"
	say "made the pool: $pool_path, $((size / 1048576)) MiB, sparse"
}

pool_make_device()
{
	kind=$(pool_signature "$pool_path")
	case "$kind" in
	btrfs)
		[ "$(blkid -p -o value -s LABEL "$pool_path")" = "$instance" ] ||
			die "'$pool_path' holds a btrfs that is not a pool of '$instance':" \
				"'wipefs -a $pool_path' if it may go"
		return 0
		;;
	'') ;;
	*) die "'$pool_path' holds '$kind': 'wipefs -a $pool_path' if it may go" ;;
	esac
	[ -z "$(wipefs -n "$pool_path")" ] || die "'$pool_path' has a signature: see 'wipefs -n'"
	name=$(basename "$(readlink -f "$pool_path")")
	for used in "/sys/class/block/$name/holders"/* "/sys/class/block/$name/$name"*; do
		[ ! -e "$used" ] || die "'$pool_path' is in use or has partitions: $used"
	done
	mkfs.btrfs -q -L "$instance" "$pool_path" >/dev/null
	say "made the pool: $pool_path"
}

# Sets pool_device: the block device to mount.
pool_attach()
{
	if [ -b "$pool_path" ]; then
		pool_make_device
		pool_device=$(readlink -f "$pool_path")
		return 0
	fi
	[ ! -L "$pool_path" ] || die "'$pool_path' is a symbolic link"
	if [ ! -e "$pool_path" ] || { [ -f "$pool_path" ] && [ ! -s "$pool_path" ]; }; then
		pool_make_file
	fi
	[ -f "$pool_path" ] || die "'$pool_path' is neither a file nor a block device"
	kind=$(pool_signature "$pool_path")
	[ "$kind" = btrfs ] || die "'$pool_path' holds '${kind:-no file system}', not a pool"

	attached=$(losetup --noheadings --output NAME --associated "$pool_path" | tr -d ' ')
	case $(printf '%s' "$attached" | grep -c .) in
	0)
		modprobe -q loop 2>/dev/null || :
		pool_device=$(losetup --find --show "$pool_path") ||
			die "no loop device for '$pool_path'"
		;;
	1) pool_device=$attached ;;
	*) die "'$pool_path' is on several loop devices, which loses data:" "$attached" ;;
	esac
}

# A mounted btrfs shows in sysfs whichever mount namespace holds it. The same file system on our
# own device may be mounted again (a keeper or sandbox that lives on still holds it); on another
# device it is a copy or the same file twice.
pool_refuse_double()
{
	fsid=$(pool_uuid "$pool_device")
	[ "$fsid" ] || die "no btrfs on '$pool_device'"
	for device in "/sys/fs/btrfs/$fsid/devices"/*; do
		[ -e "$device" ] || continue
		[ "$(basename "$device")" = "$(basename "$pool_device")" ] ||
			die "the file system of '$pool_path' is mounted from /dev/$(basename "$device")"
	done
}

pool_quotas()
{
	mode=/sys/fs/btrfs/$fsid/qgroups/mode
	if [ ! -e "$mode" ] || [ "$(cat "/sys/fs/btrfs/$fsid/qgroups/enabled")" != 1 ]; then
		"${SKERRY_QUOTA:-$here/skerry-quota}" "$pool_dir" >/dev/null || die "no quotas on '$pool_dir'"
	fi
}

pool_up()
{
	if [ "${POOL-}" ] && [ "$POOL" != "$pool_path" ]; then
		[ -b "$POOL" ] || die "POOL: '$POOL' is no block device"
		[ ! -e "$pool_path" ] ||
			die "this host has a pool at '$pool_path' already: POOL is for the first time"
		sed "/^pool:/,/^[^ \t]/s|^\([ \t]\{1,\}path:\).*|\1 $POOL|" "$config" >"$config.new"
		chmod --reference="$config" "$config.new"
		mv "$config.new" "$config"
		config_load
		[ "$pool_path" = "$POOL" ] || die "set 'pool.path: $POOL' in $config"
	fi
	[ -d "$pool_parent" ] || die "no directory '$pool_parent': run 'skerry-setup prepare' first"
	pool_lock
	modprobe -q btrfs 2>/dev/null || :
	grep -qw btrfs /proc/filesystems || die "this kernel has no btrfs"
	[ -d "$pool_dir" ] || mkdir -m 700 "$pool_dir"
	pool_attach
	pool_refuse_double
	if pool_is_mounted; then
		[ "$(findmnt -n -o SOURCE --mountpoint "$pool_dir" | tail -n 1)" = "$pool_device" ] ||
			die "something else is mounted on '$pool_dir'"
	else
		mount -t btrfs -o nosuid,nodev,noexec,noatime "$pool_device" "$pool_dir"
	fi
	pool_quotas
	exec 8>&-
}

# Processes whose mount namespace has the pool.
pool_holders()
{
	grep -slE " - btrfs $1 " /proc/[0-9]*/mountinfo | sed 's|^/proc/||; s|/.*||' | sort -n |
		while read -r pid; do
			printf '%s (%s) ' "$pid" "$(cat "/proc/$pid/comm" 2>/dev/null)"
		done
}

# Detaches one loop device. A process with a mount namespace of its own, such as a keeper on its
# way out, may hold a copy of the mount for a moment; the kernel then keeps the device until that
# one ends.
pool_detach()
{
	losetup -d "$1"
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		losetup --noheadings --output NAME --associated "$pool_path" | grep -qx "$1 *" || return 0
		sleep 0.25
	done
	warn "'$1' stays attached to '$pool_path' until these processes end: $(pool_holders "$1")"
}

pool_down()
{
	[ -d "$pool_parent" ] || return 0
	pool_lock
	while pool_is_mounted; do
		umount "$pool_dir" || die "the pool is in use: 'skerry-setup sandboxes-down' first"
	done
	if [ -f "$pool_path" ]; then
		for device in $(losetup --noheadings --output NAME --associated "$pool_path"); do
			pool_detach "$device"
		done
	fi
	exec 8>&-
}
