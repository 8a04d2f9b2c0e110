/* jerasure's and ISA-L's encoders behind the protocol of foreign/README.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/erasure_code.h>
#include <jerasure.h>
#include <jerasure/reed_sol.h>

static const char *encode(const char *name, int k, int m, int bytes, char **data, char **parity)
{
    if (strcmp(name, "jerasure") == 0) {
        int *matrix = reed_sol_vandermonde_coding_matrix(k, m, 8);
        jerasure_matrix_encode(k, m, 8, matrix, data, parity, bytes);
        free(matrix);
        return NULL;
    }
    if (strcmp(name, "jerasure-r6") == 0) {
        if (m != 2)
            return "RAID-6 has two parity blocks";
        reed_sol_r6_encode(k, 8, data, parity, bytes);
        return NULL;
    }
    unsigned char *matrix = malloc((size_t)(k + m) * k), *tables = malloc((size_t)32 * k * m);
    const char *error = NULL;
    if (strcmp(name, "isal") == 0)
        gf_gen_rs_matrix(matrix, k + m, k);
    else if (strcmp(name, "isal-cauchy") == 0)
        gf_gen_cauchy1_matrix(matrix, k + m, k);
    else
        error = "no such encoder";
    if (!error) {
        ec_init_tables(k, m, matrix + k * k, tables);
        ec_encode_data(bytes, k, m, tables, (unsigned char **)data, (unsigned char **)parity);
    }
    free(matrix);
    free(tables);
    return error;
}

static char **blocks(int count, int bytes)
{
    char **blocks = calloc(count, sizeof *blocks);
    for (int i = 0; i < count; i++)
        /* Both libraries are happiest, and jerasure only right, with aligned buffers. */
        if (posix_memalign((void **)&blocks[i], 64, bytes))
            abort();
    return blocks;
}

static void release(char **blocks, int count)
{
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    free(blocks);
}

int main(void)
{
    char name[64];
    int k, m, bytes;
    while (scanf("%63s %d %d %d", name, &k, &m, &bytes) == 4 && getchar() == '\n') {
        char **data = blocks(k, bytes), **parity = blocks(m, bytes);
        for (int i = 0; i < k; i++)
            if (fread(data[i], 1, bytes, stdin) != (size_t)bytes)
                return 1;
        const char *error = encode(name, k, m, bytes, data, parity);
        if (error)
            printf("error %s\n", error);
        else
            printf("ok\n");
        for (int i = 0; i < m && !error; i++)
            fwrite(parity[i], 1, bytes, stdout);
        fflush(stdout);
        release(data, k);
        release(parity, m);
    }
    return 0;
}
