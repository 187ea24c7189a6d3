#!/bin/sh
# The first process of a User Mode Linux: runs test programs on a kernel that has TLS. Called by
# `cargo xtask ktls`; the root is that of the machine, read-only.
#
# ktls.sh MODULES TESTS
#   MODULES  folder with the modules of this kernel, a folder for each release
#   TESTS    file with a test program and its filters a line
#
# It prints "ktls: passed" at its end if all went well.

modules=$1 tests=$2

power_off() {
    echo o >/proc/sysrq-trigger
    # The end of the first process would be a panic.
    sleep 60
}

fail() {
    echo "ktls: failed: $*"
    power_off
}

mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt || fail "no room for temporary files"
ip link set lo up 2>/dev/null || ifconfig lo up || fail "no loopback"
mkdir -p /mnt/lib /mnt/home /mnt/tmp
ln -s "$modules" /mnt/lib/modules
# The kernel asks for the modules of the ciphers by itself.
printf '#!/bin/sh\nexec modprobe -d /mnt "$@"\n' >/mnt/modprobe
chmod +x /mnt/modprobe
echo /mnt/modprobe >/proc/sys/kernel/modprobe
/mnt/modprobe tls || fail "no module tls"

export TMPDIR=/mnt/tmp HOME=/mnt/home XDFS_TEST_KTLS=1
cd /mnt/tmp || fail "no folder for temporary files"
while read -r program filters; do
    # shellcheck disable=SC2086 # the filters are words
    "$program" --color=never $filters </dev/null || fail "$program $filters"
done <"$tests"
echo "ktls: passed"
power_off
