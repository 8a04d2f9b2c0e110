/*
 * Calls the library in unusual ways: with NULL and invalid arguments, from several threads, after a
 * disconnect, and in a forked child. The arguments are the cluster folder, a file, and a local copy of the
 * file.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mend.h>

#define THREADS 4
#define READS 12
#define READ_BYTES 70001

static char *content;
static size_t content_bytes;
static mend_reader *shared;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "edges: line %d: not true: %s\n", __LINE__, #condition);         \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* Checks the status, and that the message contains a text. */
#define FAILS(call, expected, text)                                                          \
    do {                                                                                     \
        mend_status got = (call);                                                            \
        if (got != (expected) || error.status != got || strstr(error.message, text) == NULL) { \
            fprintf(stderr, "edges: line %d: %s: %s\n", __LINE__, mend_status_name(got), error.message); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    content_bytes = (size_t)ftell(file);
    rewind(file);
    content = malloc(content_bytes);
    CHECK(content != NULL && fread(content, 1, content_bytes, file) == content_bytes);
    fclose(file);
}

static void check_range(mend_reader *reader, size_t offset, size_t bytes)
{
    mend_error error;
    char *buffer = malloc(bytes + 1);
    CHECK(buffer != NULL);
    buffer[bytes] = 'x';
    if (mend_read(reader, offset, buffer, bytes, &error) != MEND_OK) {
        fprintf(stderr, "edges: %s\n", error.message);
        exit(1);
    }
    CHECK(error.status == MEND_OK && error.message[0] == '\0');
    CHECK(memcmp(buffer, content + offset, bytes) == 0 && buffer[bytes] == 'x');
    free(buffer);
}

static void *read_some(void *argument)
{
    size_t thread = *(size_t *)argument, read;
    for (read = 0; read < READS; read++) {
        check_range(shared, (read * THREADS + thread) * 65537 % (content_bytes - READ_BYTES), READ_BYTES);
    }
    return NULL;
}

static void connect_fails(const char *folder)
{
    mend_options options = {0};
    mend_client *client = (mend_client *)&options;
    mend_error error;
    FAILS(mend_connect(NULL, NULL, &client, &error), MEND_INVALID, "`folder` is NULL");
    CHECK(client == NULL);
    FAILS(mend_connect(folder, NULL, NULL, &error), MEND_INVALID, "`client` is NULL");
    FAILS(mend_connect("/no/such/folder", NULL, &client, &error), MEND_SETUP, "mend init");
    options.scheme = "fastest";
    FAILS(mend_connect(folder, &options, &client, &error), MEND_INVALID, "`scheme`");
    options.scheme = "cyclic";
    options.client = "no body";
    FAILS(mend_connect(folder, &options, &client, &error), MEND_INVALID, "`client`");
    options.client = "nobody";
    FAILS(mend_connect(folder, &options, &client, &error), MEND_SETUP, "clients/nobody");
    options.client = NULL;
    options.api = "nowhere";
    FAILS(mend_connect(folder, &options, &client, &error), MEND_INVALID, "`api`");
    options.api = NULL;
    options.control = "127.0.0.1:1";
    FAILS(mend_connect(folder, &options, &client, &error), MEND_UNREACHABLE, "127.0.0.1:1");
    CHECK(mend_connect(folder, &options, &client, NULL) == MEND_UNREACHABLE && client == NULL);
}

static void open_fails(mend_client *client, const char *name)
{
    mend_reader *reader = NULL;
    mend_error error;
    FAILS(mend_open_file(NULL, name, &reader, &error), MEND_INVALID, "`client` is NULL");
    FAILS(mend_open_file(client, NULL, &reader, &error), MEND_INVALID, "`name` is NULL");
    FAILS(mend_open_file(client, name, NULL, &error), MEND_INVALID, "`reader` is NULL");
    FAILS(mend_open_file(client, "\xff", &reader, &error), MEND_INVALID, "`name` is not UTF-8");
    FAILS(mend_open_file(client, "no such film", &reader, &error), MEND_NOT_FOUND, "no such film");
    FAILS(mend_open_block(client, "99-nosuch", 0, &reader, &error), MEND_NOT_FOUND, "99-nosuch");
    FAILS(mend_open_block(client, "1", 7, &reader, &error), MEND_NOT_FOUND, "has no block 7");
    FAILS(mend_open_block(client, "1", 70000, &reader, &error), MEND_NOT_FOUND, "block 70000");
    CHECK(reader == NULL && mend_size(NULL) == 0);
}

static void read_fails(mend_reader *reader)
{
    char byte;
    mend_error error;
    FAILS(mend_read(NULL, 0, &byte, 1, &error), MEND_INVALID, "`reader` is NULL");
    FAILS(mend_read(reader, 0, NULL, 1, &error), MEND_INVALID, "`buffer` is NULL");
    FAILS(mend_read(reader, content_bytes, &byte, 1, &error), MEND_OUT_OF_RANGE, "ends past the end");
    FAILS(mend_read(reader, UINT64_MAX, &byte, 1, &error), MEND_OUT_OF_RANGE, "ends past the end");
    CHECK(mend_read(reader, content_bytes, NULL, 0, NULL) == MEND_OK);
}

static void fork_works(const char *folder, mend_reader *reader, mend_client *parents)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        mend_client *client;
        mend_error error;
        FAILS(mend_read(reader, 0, &byte, 1, &error), MEND_INVALID, "forked");
        mend_close(reader);
        mend_disconnect(parents);
        CHECK(mend_connect(folder, NULL, &client, &error) == MEND_OK);
        mend_disconnect(client);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    size_t numbers[THREADS], thread;
    mend_client *client;
    mend_error error;

    CHECK(argc == 4);
    load(argv[3]);
    CHECK(strcmp(mend_status_name(MEND_TOO_MUCH_LOST), "TOO_MUCH_LOST") == 0);
    CHECK(strcmp(mend_status_name((mend_status)99), "UNKNOWN") == 0 && strlen(mend_version()) >= 5);
    connect_fails(argv[1]);
    CHECK(mend_connect(argv[1], NULL, &client, &error) == MEND_OK);
    open_fails(client, argv[2]);
    CHECK(mend_open_file(client, argv[2], &shared, NULL) == MEND_OK && mend_size(shared) == content_bytes);
    read_fails(shared);
    check_range(shared, 0, content_bytes);
    fork_works(argv[1], shared, client);

    for (thread = 0; thread < THREADS; thread++) {
        numbers[thread] = thread;
        CHECK(pthread_create(&threads[thread], NULL, read_some, &numbers[thread]) == 0);
    }
    mend_disconnect(client); /* The reader keeps the connection open. */
    for (thread = 0; thread < THREADS; thread++) {
        CHECK(pthread_join(threads[thread], NULL) == 0);
    }
    check_range(shared, content_bytes - 1, 1);
    mend_close(shared);
    mend_close(NULL);
    mend_disconnect(NULL);
    free(content);
    return 0;
}
