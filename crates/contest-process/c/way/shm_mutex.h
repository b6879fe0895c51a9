/*
 * `process/shm-mutex-c`: a queue in a memfd under a robust mutex, with two condition variables to wait on; one for each
 * direction.
 */
#ifndef SHM_MUTEX_H
#define SHM_MUTEX_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../assignment.h"
#include "../buffer.h"
#include "../message.h"
#include "../protocol.h"

#define MECHANISM "process/shm-mutex-c"
#define CARRIES_BYTES true
/* As many slots as the case asks for, up to these. */
#define MOST_BYTES (UINT64_C(64) << 20)
#define MOST_SLOTS UINT64_C(65536)

/* The counts and the slots belong to who holds the mutex. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t filled, freed;
    uint64_t sent, received;
    /* They begin at a cache line. */
    _Alignas(64) unsigned char slots[];
} Queue;

typedef struct {
    Queue *in, *out;
    uint64_t slots;
    Buffers buffers;
} Ends;

static void must(int error, const char *what)
{
    if (error == EOWNERDEAD || error == ENOTRECOVERABLE)
        fail("%s: the other side died with the mutex in its hands", what);
    if (error)
        fail("%s: %s", what, strerror(error));
}

static size_t queue_size(const Ends *e)
{
    return sizeof(Queue) + e->slots * e->buffers.len;
}

static Queue *map_queue(const Ends *e, int file)
{
    struct stat is;
    size_t size = queue_size(e);
    if (fstat(file, &is))
        fail("the queue's size: %s", strerror(errno));
    if ((uint64_t)is.st_size != size)
        fail("the queue has %" PRIu64 " bytes, not %zu", (uint64_t)is.st_size, size);
    Queue *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (queue == MAP_FAILED)
        fail("mapping a queue of %zu bytes: %s", size, strerror(errno));
    return queue;
}

/* An empty queue, and in `file` the memory file it lies in, whose size nobody can change. */
static Queue *make_queue(const Ends *e, int *file)
{
    *file = memfd_create("estafette-queue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*file < 0 || ftruncate(*file, (off_t)queue_size(e)) ||
        fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        fail("a memory file of %zu bytes: %s", queue_size(e), strerror(errno));
    Queue *queue = map_queue(e, *file);
    pthread_mutexattr_t of_mutex;
    must(pthread_mutexattr_init(&of_mutex), "a mutex");
    must(pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED), "a mutex between processes");
    must(pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST), "a robust mutex");
    must(pthread_mutex_init(&queue->mutex, &of_mutex), "a mutex");
    pthread_mutexattr_destroy(&of_mutex);
    pthread_condattr_t of_conditions;
    must(pthread_condattr_init(&of_conditions), "a condition variable");
    must(pthread_condattr_setpshared(&of_conditions, PTHREAD_PROCESS_SHARED), "a condition variable between processes");
    must(pthread_cond_init(&queue->filled, &of_conditions), "a condition variable");
    must(pthread_cond_init(&queue->freed, &of_conditions), "a condition variable");
    pthread_condattr_destroy(&of_conditions);
    return queue;
}

/* The consumer makes the queues and offers their files. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 2 : 1;
    int there = -1, back = -1;
    Ends e = {.slots = least(least(a->capacity, MOST_SLOTS), MOST_BYTES / a->len), .buffers = message_buffers(a->len)};
    if (e.slots == 0)
        e.slots = 1;
    if (a->producer) {
        int files[2] = {-1, -1};
        want("queues", files, count);
        there = files[0];
        back = files[1];
        e.out = map_queue(&e, there);
        e.in = a->ping_pong ? map_queue(&e, back) : NULL;
    } else {
        e.in = make_queue(&e, &there);
        e.out = a->ping_pong ? make_queue(&e, &back) : NULL;
        offer("queues", (int[]){there, back}, count);
    }
    /* The mappings stay. */
    close(there);
    if (a->ping_pong)
        close(back);
    return e;
}

static inline unsigned char *slot(const Ends *e, Queue *queue, uint64_t number)
{
    return queue->slots + number % e->slots * e->buffers.len;
}

static inline void put(Ends *e, Generator *next)
{
    Queue *q = e->out;
    fill(next, e->buffers.out, e->buffers.len);
    must(pthread_mutex_lock(&q->mutex), "sending");
    while (q->sent - q->received >= e->slots)
        must(pthread_cond_wait(&q->freed, &q->mutex), "waiting for room");
    memcpy(slot(e, q, q->sent), e->buffers.out, e->buffers.len);
    q->sent++;
    must(pthread_mutex_unlock(&q->mutex), "sending");
    must(pthread_cond_signal(&q->filled), "waking the receiver");
}

static inline void get(Ends *e, Verifier *seen)
{
    Queue *q = e->in;
    must(pthread_mutex_lock(&q->mutex), "receiving");
    while (q->sent == q->received)
        must(pthread_cond_wait(&q->filled, &q->mutex), "waiting for a message");
    memcpy(e->buffers.in, slot(e, q, q->received), e->buffers.len);
    q->received++;
    must(pthread_mutex_unlock(&q->mutex), "receiving");
    must(pthread_cond_signal(&q->freed), "waking the sender");
    check(seen, e->buffers.in, e->buffers.len);
}

static inline void close_ends(Ends *e)
{
    size_t size = queue_size(e);
    if (e->in)
        munmap(e->in, size);
    if (e->out)
        munmap(e->out, size);
    free_buffers(&e->buffers);
}

#endif
