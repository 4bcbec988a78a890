# The front door. What each target does stands in a script; meson builds.
.POSIX:
BUILD = build
export BUILD

all: build

# as a user; prints how long it took
build:
	@packaging/build $(BUILD)

# The machine: packages, programs, daemons, image, a first sandbox. Repeat it to upgrade.
#   sudo make up [POOL=/dev/...]
up:
	@POOL='$(POOL)' packaging/up

down:
	@packaging/down

# All that `make up` made outside this directory, sandboxes too. Packages stay.
purge:
	@packaging/purge

test:
	@tests/run

test-long:
	@tests/run --long

# on a stock Debian 12 with systemd, in QEMU: about half an hour
test-vm:
	@tests/vm/run

check:
	@tests/check

asan:
	@tests/sanitize address,undefined

tsan:
	@tests/sanitize thread

# FUZZ_SECONDS for each program
fuzz:
	@tests/run-fuzz

bench: build
	@meson test -C $(BUILD) --benchmark --verbose

clean:
	rm -rf $(BUILD) build-test build-gcc build-clang build-asan build-tsan build-fuzz

.PHONY: all build up down purge test test-long test-vm check asan tsan fuzz bench clean
