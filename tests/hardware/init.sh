#!/bin/sh
# The guest's first program, from the initial RAM disk: mounts its root disk and the host's folders.
export PATH=/bin
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
for module in /modules/*; do
    busybox insmod "$module" || echo "cannot load $module"
done

# Disks come when they come; a machine that never finds its own is ended by the host.
until disk=$(busybox findfs LABEL=guest-root 2>/dev/null); do busybox usleep 20000; done
busybox mkdir -p /root
busybox mount -t ext4 -o noatime "$disk" /root
swap=${disk%1}2
busybox mkswap "$swap" >/dev/null && busybox swapon "$swap"

busybox mount -t tmpfs -o mode=755 none /root/run
share() { # tag, where
    busybox mkdir -p "$2"
    busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose "$1" "$2"
}
share inside /root/run/shares/inside
share usr /root/run/shares/usr
busybox mount -t overlay -o ro,lowerdir=/root/run/shares/inside/usr:/root/run/shares/usr none /root/usr
while read -r tag point; do
    lower=/root/run/shares/$tag
    changed=/root/run/changed/$tag
    share "$tag" "$lower"
    busybox mkdir -p "$changed/upper" "$changed/work"
    busybox mount -t overlay -o "lowerdir=$lower,upperdir=$changed/upper,workdir=$changed/work" none "/root$point"
done < /shares

at() { # type, where, options
    busybox mkdir -p "/root$2"
    busybox mount -t "$1" -o "${3:-relatime}" none "/root$2"
}
busybox mount --move /proc /root/proc
busybox mount --move /sys /root/sys
busybox mount --move /dev /root/dev
at securityfs /sys/kernel/security
at debugfs /sys/kernel/debug
at tracefs /sys/kernel/tracing
at cgroup2 /sys/fs/cgroup
at devpts /dev/pts mode=620,gid=5
at tmpfs /dev/shm mode=1777
busybox ln -s /proc/self/fd /root/dev/fd
busybox mkdir -p /root/run/lock
busybox hostname guest
busybox ifconfig lo up
exec busybox switch_root /root /start.sh
