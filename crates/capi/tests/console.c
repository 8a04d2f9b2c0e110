/*
 * A requestor driven by commands, for tests with real processes (crates/cli/tests/faults/c.rs). Its
 * arguments are the cluster folder and a file. Each input line is "OFFSET BYTES". Each answer is a line:
 * "ok", followed by the bytes, or the status and the message.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <mend.h>

int main(int argc, char **argv)
{
    mend_client *client;
    mend_reader *reader;
    mend_error error;
    uint64_t offset, bytes;

    if (argc != 3 || mend_connect(argv[1], NULL, &client, &error) != MEND_OK
        || mend_open_file(client, argv[2], &reader, &error) != MEND_OK) {
        fprintf(stderr, "console: it cannot open the file\n");
        return 1;
    }
    while (scanf("%" SCNu64 " %" SCNu64, &offset, &bytes) == 2) {
        void *buffer = malloc(bytes);
        if (mend_read(reader, offset, buffer, bytes, &error) == MEND_OK) {
            printf("ok\n");
            fwrite(buffer, 1, bytes, stdout);
        } else {
            printf("%s %s\n", mend_status_name(error.status), error.message);
        }
        fflush(stdout);
        free(buffer);
    }
    mend_close(reader);
    mend_disconnect(client);
    return 0;
}
