/*
 * Reads a range of a file of a Mend cluster, or of a block, and writes it to standard output. Lost blocks are
 * decoded on the way.
 *
 *     cc read_range.c $(pkg-config --cflags --libs mend) -o read_range
 *     ./read_range mycluster film 1000000 4096 | xxd
 *     ./read_range -b 3 mycluster 1-k3f9x2 0 4096 | xxd      (block 3 of stripe 1-k3f9x2)
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mend.h>

/* Bytes per call of mend_read, which bounds the memory of this program. */
#define PIECE_BYTES (16u << 20)

/* Parses a number; returns 0 if the text is anything else. */
static int number(const char *text, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return 0;
    }
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static int failed(const char *what, const mend_error *error)
{
    fprintf(stderr, "read_range: %s: %s: %s\n", what, mend_status_name(error->status), error->message);
    return 1;
}

/* Writes a range to standard output. */
static int copy(mend_reader *reader, uint64_t offset, uint64_t bytes)
{
    mend_error error;
    void *buffer = malloc(PIECE_BYTES);
    int result = 0;
    if (buffer == NULL) {
        perror("read_range");
        return 1;
    }
    while (bytes > 0 && result == 0) {
        size_t piece = bytes < PIECE_BYTES ? (size_t)bytes : PIECE_BYTES;
        if (mend_read(reader, offset, buffer, piece, &error) != MEND_OK) {
            result = failed("mend_read", &error);
        } else if (fwrite(buffer, 1, piece, stdout) != piece) {
            perror("read_range: standard output");
            result = 1;
        }
        offset += piece;
        bytes -= piece;
    }
    free(buffer);
    return result;
}

int main(int argc, char **argv)
{
    mend_options options = {0};
    mend_client *client;
    mend_reader *reader;
    mend_error error;
    uint64_t offset, bytes, index = 0;
    int option, result, is_block = 0;

    while ((option = getopt(argc, argv, "b:c:t:")) != -1) {
        if (option == 'b' && number(optarg, &index) && index <= UINT32_MAX) {
            is_block = 1;
        } else if (option == 'c') {
            options.client = optarg;
        } else if (option != 't' || !number(optarg, &options.timeout_ms)) {
            goto usage;
        }
    }
    if (argc - optind != 4 || !number(argv[optind + 2], &offset) || !number(argv[optind + 3], &bytes)) {
        goto usage;
    }

    if (mend_connect(argv[optind], &options, &client, &error) != MEND_OK) {
        return failed(argv[optind], &error);
    }
    if (is_block) {
        mend_open_block(client, argv[optind + 1], (uint32_t)index, &reader, &error);
    } else {
        mend_open_file(client, argv[optind + 1], &reader, &error);
    }
    if (error.status != MEND_OK) {
        mend_disconnect(client);
        return failed(argv[optind + 1], &error);
    }
    fprintf(stderr, "read_range: %s has %" PRIu64 " bytes\n", argv[optind + 1], mend_size(reader));
    result = copy(reader, offset, bytes);
    mend_close(reader);
    mend_disconnect(client);
    if (result == 0 && fflush(stdout) != 0) {
        perror("read_range: standard output");
        result = 1;
    }
    return result;

usage:
    fprintf(stderr, "usage: read_range [-c CLIENT] [-t TIMEOUT_MS] FOLDER FILE OFFSET BYTES\n"
                    "       read_range [-c CLIENT] [-t TIMEOUT_MS] -b INDEX FOLDER STRIPE OFFSET BYTES\n");
    return 2;
}
