# shellcheck shell=sh
# purge: back to a host without Skerry. Sourced by skerry-setup.

# Archives of images that `make up` made, by the list images/build left: others use the cache too.
# Under the lock of that cache, which goes with its directory only, when nothing else is in it.
cache_remove()
{
	[ -f "$record_dir/archives" ] && [ -d "$cache_dir/images" ] || return 0
	exec 7>>"$cache_dir/images/.lock"
	if ! flock -w 10 7; then
		warn "'$cache_dir/images' is in use and stays"
		exec 7>&-
		return 0
	fi
	while read -r archive; do
		case "${archive#"$cache_dir/images/"}" in
		*/* | '') ;;
		*) rm -f -- "$archive" "$archive.log" "$archive.new" ;;
		esac
	done <"$record_dir/archives"
	if [ "$(ls -A "$cache_dir/images")" = .lock ]; then
		rm -f -- "$cache_dir/images/.lock"
		rmdir -- "$cache_dir/images" "$cache_dir" 2>/dev/null || :
	else
		say "'$cache_dir/images' holds archives that others made, and stays"
	fi
	exec 7>&-
}

# A directory of ours goes only when nothing is mounted below it any more: rm must never walk into
# a pool, or into whatever somebody mounted there.
remove_tree()
{
	[ -d "$1" ] || return 0
	if awk -v path="$1" '$5 == path || index($5, path "/") == 1 { found = 1 }
		END { exit !found }' /proc/self/mountinfo; then
		die "something is still mounted below '$1'"
	fi
	rm -rf --one-file-system -- "$1"
}

users_remove()
{
	for kind in user group; do
		[ -f "$record_dir/${kind}s" ] || continue
		db=passwd
		[ "$kind" = user ] || db=group
		while read -r name; do
			if getent "$db" "$name" >/dev/null; then
				account "${kind}del" "$name"
			fi
		done <"$record_dir/${kind}s"
	done
}

# The pool of a device is the operator's partition: its content is gone with the sandboxes, so the
# signature goes too, or the next set-up would take it for a pool in use.
pool_remove()
{
	if [ -b "$pool_path" ]; then
		[ "$(blkid -p -o value -s LABEL "$pool_path" 2>/dev/null)" != "$instance" ] ||
			wipefs -q -a "$pool_path"
	else
		rm -f -- "$pool_path" "$pool_path.new"
	fi
}

dirs_remove()
{
	[ -f "$record_dir/dirs" ] || return 0
	while read -r dir; do
		remove_tree "$dir"
	done <"$record_dir/dirs"
}

# Files `make up` installed, from the list it left.
files_remove()
{
	[ -f "$record_dir/installed" ] || return 0
	while read -r file; do
		case "$file" in
		/*) [ -d "$file" ] || rm -f -- "$file" ;;
		esac
	done <"$record_dir/installed"
}

# The directories it made for files, innermost first; what holds other things by now stays.
made_dirs_remove()
{
	[ -f "$record_dir/made-dirs" ] || return 0
	sort -r "$record_dir/made-dirs" | while read -r dir; do
		rmdir -- "$dir" 2>/dev/null || :
	done
}

# Formatted pages that man keeps: ours go with their sources.
man_cache_remove()
{
	[ -f "$record_dir/installed" ] || return 0
	sed -n 's|.*/man/man\([1-9]\)/\([^/]*\)$|\1 \2|p' "$record_dir/installed" |
		while read -r section page; do
			for dir in /var/cache/man /var/cache/man/local /var/cache/man/oldlocal; do
				rm -f -- "$dir/cat$section/${page%.gz}" "$dir/cat$section/${page%.gz}.gz"
			done
		done
}

# What the operator loses is said before it goes.
say_what_goes()
{
	count=$(python3 - "$state_dir/skerry.db" 2>/dev/null <<-'END'
		import os, sqlite3, sys
		if not os.path.exists(sys.argv[1]):
		    sys.exit(1)
		database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, timeout=5)
		print(database.execute("SELECT count(*) FROM sandboxes").fetchone()[0])
	END
	) || return 0
	case "$count" in
	0) say "purge: no sandbox is there to delete" ;;
	1) say "purge: deletes 1 sandbox with its disk ('make down' stops and keeps it)" ;;
	*) say "purge: deletes $count sandboxes with their disks ('make down' stops and keeps them)" ;;
	esac
}

# Tokens written for people: only a file that still is the one we wrote.
tokens_remove()
{
	[ -f "$record_dir/tokens" ] || return 0
	while IFS='	' read -r sum file; do
		if [ -f "$file" ] && [ "$(sha256sum <"$file")" = "$sum" ]; then
			rm -f -- "$file"
		elif [ -f "$file" ]; then
			warn "'$file' was changed since and stays"
		fi
	done <"$record_dir/tokens"
}

purge()
{
	if [ ! -f "$config" ]; then
		say "nothing to remove: no $config"
		return 0
	fi
	config_load
	say_what_goes
	if use_systemd; then
		systemctl disable --quiet skerry.target 2>/dev/null || :
	fi
	services_down
	kernel_down
	! use_systemd || systemctl stop skerry-pool.service 2>/dev/null || :
	pool_down
	tokens_remove
	pool_remove
	dirs_remove
	cache_remove
	sysctls_down
	users_remove
	man_cache_remove
	files_remove
	made_dirs_remove
	! use_systemd || systemctl daemon-reload
	if [ -s "$record_dir/packages" ]; then
		say "packages that were installed for Skerry and stay:"
		sort -u "$record_dir/packages" | sed 's/^/  /'
	fi
	remove_tree "$sv_dir"
	remove_tree "$record_dir"
	# last: without it a second run has nothing to go by
	rm -f -- "$config" "$config.new"
	rmdir -- "$conf_dir" 2>/dev/null || :
	say "removed"
}
