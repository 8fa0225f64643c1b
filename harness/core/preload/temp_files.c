/*
 * Gives every temporary file of a database server a set number of bytes when it is created, in an
 * unmodified server: LD_PRELOAD=temp_files.so FLASHLAB_TEMP_FILE_BYTES=N server ...
 *
 * What it does, for a file that an open with O_CREAT leaves empty and whose name contains
 * "pgsql_tmp" (docs/papers/trim_fallocate.md, the variant of PostgreSQL with fallocate):
 *
 *   after the open    fallocate(FALLOC_FL_KEEP_SIZE, 0, N): the blocks, not the size
 *   before a read     with FLASHLAB_TEMP_FILE_GIVE_BACK=1, ftruncate to the size that it has: frees
 *                     the blocks behind it, once, when writing has ended; else they go with the
 * file
 *
 * Punching a hole there would not free them: ext4 ignores what lies behind the end of a file. A
 * close says nothing of a file's end: a server that has too many files open closes some and opens
 * them again later.
 *
 * If the blocks cannot be had, the open fails with the reason (ENOSPC, EOPNOTSUPP) and the file is
 * gone: a run without preallocation must not pass as one with it. So does every later one of that
 * process: PostgreSQL would go on with temporary files in the database's own folder, which is not
 * on the device under test. If the tail cannot be given back, nothing is said: it goes with the
 * file.
 *
 * A descriptor is known by its process and by its file, so one that was inherited, or that became
 * another file's unseen (dup2, a call past the C library), is left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* A server with more files open than this would not get its tails back, and nothing worse. */
enum { MOST_FILES = 1 << 16 };

struct file {
  pid_t owner;
  dev_t device;
  ino_t inode;
};

static struct file created[MOST_FILES];
static off_t wanted_bytes;
static int gives_back;
static int refused;

__attribute__((constructor)) static void read_setting(void) {
  const char* text = getenv("FLASHLAB_TEMP_FILE_BYTES");
  char* end = NULL;
  long long value = text ? strtoll(text, &end, 10) : 0;
  if (text && (end == text || *end || value < 0 || value == LLONG_MAX)) {
    fprintf(stderr, "temp_files.so: FLASHLAB_TEMP_FILE_BYTES=%s is not a number of bytes\n", text);
    _exit(2);
  }
  wanted_bytes = (off_t)value;
  const char* gives = getenv("FLASHLAB_TEMP_FILE_GIVE_BACK");
  gives_back = gives && !strcmp(gives, "1");
}

/* The C library's function of that name, which ours stands before. */
static void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (!found) {
    fprintf(stderr, "temp_files.so: the C library has no %s\n", name);
    abort();
  }
  return found;
}

#define NEXT(name) (__extension__(__typeof__(&name)) next(#name))

static int is_temp_file(const char* path, int flags) {
  return wanted_bytes && (flags & O_TMPFILE) != O_TMPFILE && path && strstr(path, "pgsql_tmp");
}

static void remember(int fd, const struct stat* facts) {
  if (fd >= 0 && fd < MOST_FILES) {
    created[fd] = (struct file){getpid(), facts->st_dev, facts->st_ino};
  }
}

/* Opened again, by a server that had to close it. */
static void opened_again(int fd) {
  struct stat facts;
  int before = errno;
  if (gives_back && !fstat(fd, &facts) && S_ISREG(facts.st_mode)) {
    remember(fd, &facts);
  }
  errno = before;
}

/* Returns 0, or what was wrong: now, or the first time that anything was. */
static int allocate(int fd) {
  struct stat facts;
  if (fstat(fd, &facts) || !S_ISREG(facts.st_mode) || facts.st_size) {
    return 0;
  }
  while (!refused && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, wanted_bytes)) {
    refused = errno == EINTR ? 0 : errno;
  }
  if (!refused) {
    remember(fd, &facts);
  }
  return refused;
}

/* What an open returns: `fd`, or -1 with errno and the file deleted. */
static int opened(int fd, int folder, const char* path, int flags) {
  if (fd < 0 || !is_temp_file(path, flags)) {
    return fd;
  }
  if (!(flags & O_CREAT)) {
    opened_again(fd);
    return fd;
  }
  int before = errno;
  int problem = allocate(fd);
  if (problem) {
    NEXT(close)(fd);
    unlinkat(folder, path, 0);
  }
  errno = problem ? problem : before;
  return problem ? -1 : fd;
}

static void give_back(int fd) {
  if (fd < 0 || fd >= MOST_FILES || !created[fd].owner) {
    return;
  }
  int before = errno;
  struct file file = created[fd];
  struct stat facts;
  created[fd].owner = 0;
  if (file.owner == getpid() && !fstat(fd, &facts) && facts.st_dev == file.device &&
      facts.st_ino == file.inode && ftruncate(fd, facts.st_size)) {
    /* It goes with the file: see above. */
  }
  errno = before;
}

static mode_t mode_of(int flags, va_list arguments) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                       \
  PUBLIC int name(const char* path, int flags, ...) {                    \
    va_list arguments;                                                   \
    va_start(arguments, flags);                                          \
    mode_t mode = mode_of(flags, arguments);                             \
    va_end(arguments);                                                   \
    return opened(NEXT(name)(path, flags, mode), AT_FDCWD, path, flags); \
  }
#define OPENAT(name)                                                           \
  PUBLIC int name(int folder, const char* path, int flags, ...) {              \
    va_list arguments;                                                         \
    va_start(arguments, flags);                                                \
    mode_t mode = mode_of(flags, arguments);                                   \
    va_end(arguments);                                                         \
    return opened(NEXT(name)(folder, path, flags, mode), folder, path, flags); \
  }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* What programs call that were compiled with _FORTIFY_SOURCE. They refuse O_CREAT, which needs a
 * mode, so they only pass through here; a C library of tomorrow may think otherwise. */
#define OPEN_2(name)                                               \
  PUBLIC int name(const char* path, int flags) {                   \
    return opened(NEXT(name)(path, flags), AT_FDCWD, path, flags); \
  }
#define OPENAT_2(name)                                                   \
  PUBLIC int name(int folder, const char* path, int flags) {             \
    return opened(NEXT(name)(folder, path, flags), folder, path, flags); \
  }

int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
OPEN_2(__open_2)
OPEN_2(__open64_2)
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define CREAT(name)                                                                      \
  PUBLIC int name(const char* path, mode_t mode) {                                       \
    return opened(NEXT(name)(path, mode), AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC); \
  }

CREAT(creat)
CREAT(creat64)

/* The C library opens and closes these by itself, past the functions above. */
#define FOPEN(name)                                         \
  PUBLIC FILE* name(const char* path, const char* mode) {   \
    FILE* stream = NEXT(name)(path, mode);                  \
    int creates = mode[0] == 'w' || mode[0] == 'a';         \
    if (stream && creates && is_temp_file(path, O_CREAT)) { \
      int problem = allocate(fileno(stream));               \
      if (problem) {                                        \
        NEXT(fclose)(stream);                               \
        unlink(path);                                       \
        errno = problem;                                    \
        return NULL;                                        \
      }                                                     \
    }                                                       \
    return stream;                                          \
  }

FOPEN(fopen)
FOPEN(fopen64)

/* The first look at what was written: PostgreSQL reads a batch's file when it is whole. */
#define READ(name, arguments, passed)      \
  static __typeof__(&name) next_##name;    \
  PUBLIC ssize_t name arguments {          \
    if (!next_##name) {                    \
      next_##name = NEXT(name); /* dear */ \
    }                                      \
    if (gives_back) {                      \
      give_back(fd);                       \
    }                                      \
    return next_##name passed;             \
  }

ssize_t __pread_chk(int fd, void* to, size_t bytes, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void* to, size_t bytes, off64_t at, size_t room);
READ(read, (int fd, void* to, size_t bytes), (fd, to, bytes))
READ(pread, (int fd, void* to, size_t bytes, off_t at), (fd, to, bytes, at))
READ(pread64, (int fd, void* to, size_t bytes, off64_t at), (fd, to, bytes, at))
READ(__pread_chk, (int fd, void* to, size_t bytes, off_t at, size_t room),
     (fd, to, bytes, at, room))
READ(__pread64_chk, (int fd, void* to, size_t bytes, off64_t at, size_t room),
     (fd, to, bytes, at, room))
READ(preadv, (int fd, const struct iovec* to, int count, off_t at), (fd, to, count, at))
READ(preadv64, (int fd, const struct iovec* to, int count, off64_t at), (fd, to, count, at))
