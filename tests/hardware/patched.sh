#!/bin/sh
# The only program of the patched kernel's machine. The kernel's own pretended drive (scsi_debug)
# has five permanent streams; what was written is told by the dispatched commands and by the drive.
export PATH=/bin
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
busybox mount -t tracefs none /sys/kernel/tracing
echo 1 > /proc/sys/kernel/printk
tracing=/sys/kernel/tracing
groups=/sys/bus/pseudo/drivers/scsi_debug/group_number_stats

begin() { # name
    echo "begin $1"
    echo 0 > "$groups"
    echo > "$tracing/trace"
    echo 1 > "$tracing/events/scsi/scsi_dispatch_cmd_start/enable"
}
end() {
    echo 0 > "$tracing/events/scsi/scsi_dispatch_cmd_start/enable"
    busybox grep -oE 'entries-in.*|WRITE.*' "$tracing/trace"
    busybox sed 's/^/group /' "$groups"
    echo "end"
}
mounted() { # options
    busybox mount -t ext4 -o "$1" /dev/sda /files || echo "problem: cannot mount $1"
    busybox sed -n 's/^/mounted /; / \/files /p' /proc/mounts
}
work() { # name: more than the journal holds, deleted directories (revoke records), small fsyncs
    for i in 1 2 3 4 5 6; do
        busybox mkdir "/files/$1-$i"
        busybox dd if=/dev/urandom "of=/files/$1-$i/big" bs=256k count=4 conv=fsync 2>/dev/null
        busybox dd if=/dev/urandom "of=/files/$1-$i/small" bs=700 count=1 conv=fsync 2>/dev/null
    done
    busybox rm -r "/files/$1-1" "/files/$1-2"
    busybox find /files -type f -exec busybox md5sum '{}' + > /sums
    busybox sync
    busybox sed -n 's/ commits$//; s/^/fast /; /^fast [0-9]*$/p' /proc/fs/ext4/sda/fc_info
}
compare() {
    mounted ro
    busybox md5sum -c -s /sums && busybox sed 's/^/file /' /sums || echo "problem: files differ"
    busybox umount /files
}

for image in journalled fast; do
    busybox dd "if=/$image" of=/dev/sda bs=1M conv=fsync 2>/dev/null
    if [ "$image" = journalled ]; then data=journal; else data=ordered; fi
    begin "$image unset"
    mounted "data=$data"
    work unset
    end
    begin "$image remounted"
    mounted "remount,journal_write_hint=extreme"
    work remounted
    end
    busybox umount /files
    compare
    begin "$image short"
    mounted "data=$data,journal_write_hint=short"
    work short
    busybox umount /files
    end
    compare
    busybox mount -t ext4 -o journal_write_hint=soon /dev/sda /files 2>/dev/null && echo "problem: soon"
done
echo "done"
busybox reboot -f
