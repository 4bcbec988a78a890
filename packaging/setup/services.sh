# shellcheck shell=sh
# The daemons under a supervisor: systemd units where systemd is PID 1, otherwise Debian's runit
# (one runsvdir of our own, so that no init of the host is touched). Sandboxes are children of the
# keeper's making but not of the services: stopping a service signals its one process. Sourced by
# skerry-setup.
#
# Order matters at start only: the API speaks to the keeper, the others serve the API.
services="lxcfs keeper api edge dns"

use_systemd()
{
	[ -d /run/systemd/system ] && [ "$config" = /etc/skerry/skerry.yaml ]
}

# program NAME: beside this script, or where the same installation puts programs
program()
{
	for dir in "$here" "$here/../../sbin" "$here/../../bin"; do
		if [ -x "$dir/$1" ]; then
			readlink -f "$dir/$1"
			return 0
		fi
	done
	die "'$1' is not installed beside $here"
}

render()
{
	skerryd=${SKERRYD:-$(program skerryd)}
	fresh=$private_dir/render
	rm -rf "$fresh"
	install -d -m 755 "$fresh"
	"$skerryd" --config "$config" --render "$fresh" || die "the daemon refuses $config"
	for file in "$fresh"/*; do
		name=$(basename "$file")
		chmod 644 "$file"
		if ! cmp -s "$file" "$render_dir/$name"; then
			mv "$file" "$render_dir/$name"
		fi
	done
	rm -rf "$fresh"
}

# What a service is run with; a change of it restarts the service.
service_conf()
{
	case "$1" in
	keeper) echo "$render_dir/keeper.conf" ;;
	lxcfs) echo /dev/null ;;
	api) echo "$config" ;;
	edge) echo "$render_dir/haproxy.cfg" ;;
	dns) echo "$render_dir/dnsmasq.conf" ;;
	esac
}

service_command()
{
	case "$1" in
	lxcfs)
		# what one that was killed left answers nothing
		echo "umount -l '$run_dir/lxcfs' 2>/dev/null"
		echo "mkdir -p '$run_dir/lxcfs'"
		echo "exec lxcfs -f -l --enable-cfs -p '$run_dir/lxcfs.pid' '$run_dir/lxcfs'"
		;;
	keeper)
		echo "exec '${SKERRY_KEEPER:-$(program skerry-keeper)}' --config '$render_dir/keeper.conf'"
		;;
	api)
		# without its keeper it ends, and would be started again a second later
		echo "for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S '$run_dir/keeper.sock' ] && break; sleep 0.1; done"
		echo "exec chpst -u '$user:$group' '${SKERRYD:-$(program skerryd)}' --config '$config'"
		;;
	edge) echo "exec haproxy -db -f '$render_dir/haproxy.cfg'" ;;
	dns) echo "exec dnsmasq --keep-in-foreground --conf-file='$render_dir/dnsmasq.conf'" ;;
	esac
}

# --- runit ------------------------------------------------------------------------------------

write_if_changed()
{
	cat >"$1.new"
	chmod 755 "$1.new"
	if cmp -s "$1.new" "$1"; then
		rm -f "$1.new"
	else
		mv "$1.new" "$1"
	fi
}

runit_write()
{
	install -d -m 755 "$sv_dir"
	for service in $services; do
		dir=$sv_dir/$service
		command=$(service_command "$service")
		install -d -m 755 "$dir" "$dir/log"
		install -d -m 750 "$log_dir/$service"
		ln -sfn "$private_dir/$service" "$dir/supervise"
		ln -sfn "$private_dir/$service.log" "$dir/log/supervise"
		write_if_changed "$dir/run" <<-END
			#!/bin/sh
			exec 2>&1
			cd /
			umask 022
			$command
		END
		write_if_changed "$dir/log/run" <<-END
			#!/bin/sh
			exec svlogd -tt '$log_dir/$service'
		END
		printf 's1000000\nn5\n' >"$log_dir/$service/config"
	done
}

# The pid of our runsvdir, if it runs; a pid file alone may be stale.
runsvdir_pid()
{
	pid=$(cat "$private_dir/runsvdir.pid" 2>/dev/null) || return 1
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "runsvdir -P $sv_dir " || return 1
	echo "$pid"
}

runit_start()
{
	runsvdir_pid >/dev/null || {
		# A runsv outlives a killed runsvdir and is found again by its lock: nothing doubles.
		# The niceness of whoever starts us is not that of daemons and sandboxes.
		# shellcheck disable=SC2016
		setsid sh -c '
			renice -n 0 -p $$ >/dev/null 2>&1 || :
			echo $$ >"$1/runsvdir.pid"
			cd /
			exec runsvdir -P "$2" log:' \
			runsvdir "$private_dir" "$sv_dir" </dev/null >/dev/null 2>&1 &
	}
	for service in $services; do
		i=0
		until sv status "$sv_dir/$service" >/dev/null 2>&1; do
			i=$((i + 1))
			[ "$i" -le 100 ] || die "the supervisor of '$service' does not start"
			sleep 0.1
		done
	done
}

runit_pid()
{
	cat "$sv_dir/$1/supervise/pid" 2>/dev/null
}

runit_restart()
{
	sv -w 30 restart "$sv_dir/$1" >/dev/null || sv status "$sv_dir/$1" || :
}

runit_end_logger()
{
	pid=$(cat "$sv_dir/$1/log/supervise/pid" 2>/dev/null) || return 0
	[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != svlogd ] || kill -TERM "$pid" || :
}

runit_down()
{
	pid=$(runsvdir_pid) || pid=
	# the supervisors end with the services; a keeper gets TERM, its sandboxes nothing
	for service in dns edge api keeper lxcfs; do
		[ -d "$sv_dir/$service" ] || continue
		if sv status "$sv_dir/$service" >/dev/null 2>&1; then
			sv -w 30 down "$sv_dir/$service" >/dev/null ||
				warn "'$service' does not end: $(sv status "$sv_dir/$service" 2>&1)"
		fi
	done
	[ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null || :
	for service in dns edge api keeper lxcfs; do
		[ ! -d "$sv_dir/$service" ] || sv exit "$sv_dir/$service" >/dev/null 2>&1 || :
	done
	for service in dns edge api keeper lxcfs; do
		[ -d "$sv_dir/$service" ] || continue
		i=0
		while sv status "$sv_dir/$service" 2>/dev/null | grep -Eq '^(run|down|finish)'; do
			i=$((i + 1))
			# a logger waits for the last writer of its pipe, which may be a stranger
			[ "$i" -ne 20 ] || runit_end_logger "$service"
			[ "$i" -lt 50 ] || break
			sleep 0.1
		done
	done
	rm -f "$private_dir/runsvdir.pid"
}

# --- systemd ----------------------------------------------------------------------------------

unit()
{
	case "$1" in
	lxcfs) echo skerry-lxcfs.service ;;
	keeper) echo skerry-keeper.service ;;
	api) echo skerryd.service ;;
	edge) echo skerry-edge.service ;;
	dns) echo skerry-dns.service ;;
	esac
}

# --- both -------------------------------------------------------------------------------------

service_pid()
{
	if use_systemd; then
		systemctl show --property MainPID --value "$(unit "$1")" | grep -vx 0
	else
		runit_pid "$1"
	fi
}

service_runs()
{
	running=$(service_pid "$1") && [ "$running" ] && [ -d "/proc/$running" ]
}

# A program that was replaced shows as deleted; installing leaves unchanged files alone.
service_is_stale()
{
	service_runs "$1" || return 0
	case "$(readlink "/proc/$running/exe")" in
	*' (deleted)') return 0 ;;
	esac
	! sha256sum "$(service_conf "$1")" | cmp -s - "$private_dir/$1.sum"
}

service_note()
{
	sha256sum "$(service_conf "$1")" >"$private_dir/$1.sum"
}

services_up()
{
	render
	if use_systemd; then
		systemctl daemon-reload
		systemctl enable --quiet skerry.target
	else
		# what the supervisor starts now is not stale a moment later
		for service in $services; do
			service_runs "$service" || service_note "$service"
		done
		runit_write
		runit_start
	fi
	for service in $services; do
		service_is_stale "$service" || continue
		say "starting $service"
		service_note "$service"
		if use_systemd; then
			systemctl restart "$(unit "$service")"
		else
			runit_restart "$service"
		fi
	done
	! use_systemd || systemctl start skerry.target
	services_wait
}

service_last_words()
{
	if use_systemd; then
		journalctl --quiet --no-pager --output cat --lines 3 --unit "$(unit "$1")"
	else
		# after the time stamp
		tail -n 3 "$log_dir/$1/current" | cut -d ' ' -f 2-
	fi 2>/dev/null | sed 's/^/  /'
}

# services_down_why SECONDS: what was down for longer, and the ends of their logs. `downs` has a word
# SERVICE:TIME for each second in which it was seen down.
services_down_why()
{
	for service in $services; do
		# shellcheck disable=SC2086
		seconds=$(printf '%s\n' $downs | grep -c "^$service:") || :
		[ "$seconds" -gt "$1" ] || continue
		say "'$service' does not stay up; its log ends:"
		service_last_words "$service"
	done
}

# Ready is when the API answers through its public face. What ends again and again does not get
# better by waiting; the API alone may end a few times, until its keeper is there.
services_wait()
{
	downs=
	began=$(date +%s)
	until curl -fs --noproxy '*' -m 2 -o /dev/null "http://$listen/healthz"; do
		now=$(date +%s)
		for service in $services; do
			service_runs "$service" || case " $downs " in
			*" $service:$now "*) ;;
			*) downs="$downs $service:$now" ;;
			esac
		done
		why=$(services_down_why 5)
		# with one that is given up come the others that do not look better
		[ -z "$why" ] || why=$(services_down_why 2)
		if [ "$why" ] || [ $((now - began)) -ge 30 ]; then
			[ "$why" ] || why=$(services_down_why 1)
			[ -z "$why" ] || warn "$why"
			die "the API does not answer on $listen; logs: $(
				if use_systemd; then
					echo "journalctl -u 'skerry*'"
				else
					echo "$log_dir"
				fi)"
		fi
		sleep 0.1
	done
	services_settle
}

# The others start beside the API, and may be a moment behind it.
services_settle()
{
	until=$(($(date +%s) + 10))
	for service in $services; do
		until service_runs "$service" || [ "$(date +%s)" -ge "$until" ]; do
			sleep 0.1
		done
	done
}

services_down()
{
	if use_systemd; then
		for service in dns edge api keeper lxcfs; do
			systemctl stop "$(unit "$service")" 2>/dev/null || :
		done
		systemctl stop skerry.target 2>/dev/null || :
	else
		runit_down
	fi
	umount -l "$run_dir/lxcfs" 2>/dev/null || : # what a killed one left
	for service in $services; do
		rm -f "$private_dir/$service.sum"
	done
}

# The database belongs to the daemon's user: a file of root's in it would lock the daemon out.
token()
{
	skerryd=${SKERRYD:-$(program skerryd)}
	name=${SUDO_USER:-root}-$(date +%Y%m%d%H%M%S)
	secret=$(setpriv --reuid "$user" --regid "$group" --clear-groups \
		"$skerryd" --config "$config" --add-token "$name") || die "no token from the daemon"
	case "$secret" in
	skry_*[!A-Za-z0-9_-]* | skry_) die "the daemon gave no token" ;;
	skry_*) ;;
	*) die "the daemon gave no token" ;;
	esac
	printf '{"current":"default","contexts":{"default":{"url":"http://%s","token":"%s"}}}\n' \
		"$listen" "$secret"
}

# Speaks to the API with a token that `make up` wrote; without one the sandboxes are only ended.
sandboxes_stop()
{
	skerry=${SKERRY:-$(program skerry)}
	[ -f "$record_dir/tokens" ] || return 0
	file=$(tail -n 1 "$record_dir/tokens" | cut -f 2)
	[ -f "$file" ] || return 0
	home=${file%/.config/skerry/config.json}
	ids=$(HOME=$home "$skerry" list --format json 2>/dev/null |
		grep -o '"id": *"sb[a-z2-7]\{20\}"' | cut -d '"' -f 4 | sort -u) || return 0
	for id in $ids; do
		HOME=$home "$skerry" stop "$id" >/dev/null 2>&1 &
	done
	wait
}

status()
{
	for service in $services; do
		if service_runs "$service"; then
			say "$service: running, process $running"
		else
			say "$service: down"
		fi
	done
	if pool_is_mounted; then
		say "pool: $(findmnt -n -o SOURCE --mountpoint "$pool_dir") on $pool_dir"
	else
		say "pool: not mounted"
	fi
}
