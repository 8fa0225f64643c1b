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
busybox mkdir -p /disk
busybox mount -t ext4 -o noatime "$disk" /disk
swap=${disk%1}2
busybox mkswap "$swap" >/dev/null && busybox swapon "$swap"

busybox mount -t tmpfs -o mode=755 none /disk/run
share() { # tag, where
    busybox mkdir -p "$2"
    busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose "$1" "$2"
}
share inside /disk/run/shares/inside
share usr /disk/run/shares/usr
busybox mount -t overlay -o ro,lowerdir=/disk/run/shares/inside/usr:/disk/run/shares/usr none /disk/usr
while read -r tag point; do
    lower=/disk/run/shares/$tag
    changed=/disk/run/changed/$tag
    share "$tag" "$lower"
    busybox mkdir -p "$changed/upper" "$changed/work"
    busybox mount -t overlay -o "lowerdir=$lower,upperdir=$changed/upper,workdir=$changed/work" none "/disk$point"
done < /shares

at() { # type, where, options
    busybox mkdir -p "/disk$2"
    busybox mount -t "$1" -o "${3:-relatime}" none "/disk$2"
}
busybox mount --move /proc /disk/proc
busybox mount --move /sys /disk/sys
busybox mount --move /dev /disk/dev
at securityfs /sys/kernel/security
at debugfs /sys/kernel/debug
at tracefs /sys/kernel/tracing
at cgroup2 /sys/fs/cgroup
at devpts /dev/pts mode=620,gid=5
at tmpfs /dev/shm mode=1777
busybox ln -s /proc/self/fd /disk/dev/fd
busybox mkdir -p /disk/run/lock
busybox hostname guest
busybox ifconfig lo up
exec busybox switch_root /disk /start.sh
