/*
 * `process/shm-mutex-c`: a queue in a memfd with a robust mutex and two condition variables; one
 * queue for each direction.
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
/* The number of slots is the requested capacity, up to these limits. */
#define MOST_BYTES (UINT64_C(64) << 20)
#define MOST_SLOTS UINT64_C(65536)

/* Only the owner of the mutex accesses the counts and the slots. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t filled, freed;
    uint64_t sent, received;
    /* The slots begin at a cache line. */
    _Alignas(64) unsigned char slots[];
} Queue;

typedef struct {
    Queue *in, *out;
    uint64_t slots;
    Buffers buffers;
} Ends;

static void check_error(int error, const char *what)
{
    if (error == EOWNERDEAD || error == ENOTRECOVERABLE)
        fail("%s: the other side died while it owned the mutex", what);
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

/* Creates an empty queue in a new memory file, which is returned in `file`. Nobody can change its
 * size. */
static Queue *make_queue(const Ends *e, int *file)
{
    *file = memfd_create("estafette-queue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*file < 0 || ftruncate(*file, (off_t)queue_size(e)) ||
        fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        fail("a memory file of %zu bytes: %s", queue_size(e), strerror(errno));
    Queue *queue = map_queue(e, *file);
    pthread_mutexattr_t of_mutex;
    check_error(pthread_mutexattr_init(&of_mutex), "a mutex");
    check_error(pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED), "a mutex between processes");
    check_error(pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST), "a robust mutex");
    check_error(pthread_mutex_init(&queue->mutex, &of_mutex), "a mutex");
    pthread_mutexattr_destroy(&of_mutex);
    pthread_condattr_t of_conditions;
    check_error(pthread_condattr_init(&of_conditions), "a condition variable");
    check_error(pthread_condattr_setpshared(&of_conditions, PTHREAD_PROCESS_SHARED), "a condition variable between processes");
    check_error(pthread_cond_init(&queue->filled, &of_conditions), "a condition variable");
    check_error(pthread_cond_init(&queue->freed, &of_conditions), "a condition variable");
    pthread_condattr_destroy(&of_conditions);
    return queue;
}

/* The consumer creates the queues and passes their files to the producer. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 2 : 1;
    int forward = -1, reply = -1;
    Ends e = {.slots = least(least(a->capacity, MOST_SLOTS), MOST_BYTES / a->len), .buffers = message_buffers(a->len)};
    if (e.slots == 0)
        e.slots = 1;
    if (a->producer) {
        int files[2] = {-1, -1};
        request("queues", files, count);
        forward = files[0];
        reply = files[1];
        e.out = map_queue(&e, forward);
        e.in = a->ping_pong ? map_queue(&e, reply) : NULL;
    } else {
        e.in = make_queue(&e, &forward);
        e.out = a->ping_pong ? make_queue(&e, &reply) : NULL;
        publish("queues", (int[]){forward, reply}, count);
    }
    /* The mappings remain valid. */
    close(forward);
    if (a->ping_pong)
        close(reply);
    return e;
}

static inline unsigned char *slot(const Ends *e, Queue *queue, uint64_t number)
{
    return queue->slots + number % e->slots * e->buffers.len;
}

static inline void send_message(Ends *e, Generator *source)
{
    Queue *q = e->out;
    fill(source, e->buffers.out, e->buffers.len);
    check_error(pthread_mutex_lock(&q->mutex), "sending");
    while (q->sent - q->received >= e->slots)
        check_error(pthread_cond_wait(&q->freed, &q->mutex), "waiting for a free slot");
    memcpy(slot(e, q, q->sent), e->buffers.out, e->buffers.len);
    q->sent++;
    check_error(pthread_mutex_unlock(&q->mutex), "sending");
    check_error(pthread_cond_signal(&q->filled), "waking the receiver");
}

static inline void recv_message(Ends *e, Verifier *verifier)
{
    Queue *q = e->in;
    check_error(pthread_mutex_lock(&q->mutex), "receiving");
    while (q->sent == q->received)
        check_error(pthread_cond_wait(&q->filled, &q->mutex), "waiting for a message");
    memcpy(e->buffers.in, slot(e, q, q->received), e->buffers.len);
    q->received++;
    check_error(pthread_mutex_unlock(&q->mutex), "receiving");
    check_error(pthread_cond_signal(&q->freed), "waking the sender");
    check(verifier, e->buffers.in, e->buffers.len);
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
