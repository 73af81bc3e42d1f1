/* Preload library: counts the calls that change the file system, and makes one of them fail or kills the process at it.
 *
 *   FAULT_AT=N        the number of the call, from 1
 *   FAULT=kill        kill the process; a write is first carried out by half
 *   FAULT=ERRNO       let the call fail with this error number
 *   FAULT_COUNT=FILE  write the number of calls to this file when the process exits
 *
 * Writes to stdout and stderr, and files that are opened for reading, are not counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned calls;

/* Counts a call. Returns the error number that it fails with, -1 if the process is to be killed, or 0. */
static int fault(void) {
    const char *at = getenv("FAULT_AT"), *kind = getenv("FAULT");
    unsigned call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (!at || !kind || call != strtoul(at, NULL, 10)) return 0;
    return strcmp(kind, "kill") ? atoi(kind) : -1;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Carries out a call, unless it is the one that fails. */
#define CALL(name, parameters, arguments)                              \
    int name parameters {                                              \
        static int(*real) parameters;                                  \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);          \
        int error = fault();                                           \
        if (error < 0) die();                                          \
        if (error) {                                                   \
            errno = error;                                             \
            return -1;                                                 \
        }                                                              \
        return real arguments;                                         \
    }

CALL(fsync, (int fd), (fd))
CALL(fdatasync, (int fd), (fd))
CALL(rename, (const char *from, const char *to), (from, to))
CALL(mkdir, (const char *path, mode_t mode), (path, mode))
CALL(rmdir, (const char *path), (path))
CALL(unlink, (const char *path), (path))
CALL(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
CALL(fchmod, (int fd, mode_t mode), (fd, mode))
CALL(ftruncate64, (int fd, off64_t length), (fd, length))

ssize_t write(int fd, const void *data, size_t length) {
    int error = fd > 2 ? fault() : 0;
    if (error < 0) {
        syscall(SYS_write, fd, data, length / 2);
        die();
    }
    if (error) {
        errno = error;
        return -1;
    }
    return syscall(SYS_write, fd, data, length);
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    int error = flags & (O_CREAT | O_WRONLY | O_RDWR) ? fault() : 0;
    if (error < 0) die();
    if (error) {
        errno = error;
        return -1;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAULT_COUNT");
    char text[16];
    if (!path) return;
    int length = snprintf(text, sizeof text, "%u\n", calls);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd >= 0) syscall(SYS_write, fd, text, length);
}
