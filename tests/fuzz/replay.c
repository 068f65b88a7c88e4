/*
 * main() for a fuzzer without libFuzzer: plays files again, and all files of a directory. `make test`
 * builds every fuzzer with it, with any compiler.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SIZE_LIMIT (1 << 20)

static int played;

static void play(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(SIZE_LIMIT);
    if (file == NULL || data == NULL) {
        perror(path);
        exit(1);
    }
    size_t size = fread(data, 1, SIZE_LIMIT, file);
    fclose(file);
    /* A copy that ends where the input does: reading behind it is seen. */
    uint8_t *input = malloc(size > 0 ? size : 1);
    if (input == NULL)
        exit(1);
    memcpy(input, data, size);
    free(data);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
    played++;
}

static void play_all(const char *directory) {
    struct dirent **entries;
    int len = scandir(directory, &entries, NULL, alphasort);
    if (len < 0) {
        perror(directory);
        exit(1);
    }
    for (int i = 0; i < len; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            play(path);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv) {
    struct stat about;
    if (FUZZ_INITIALIZE != NULL)
        FUZZ_INITIALIZE(&argc, &argv);
    for (int i = 1; i < argc; i++)
        if (stat(argv[i], &about) == 0 && S_ISDIR(about.st_mode))
            play_all(argv[i]);
        else
            play(argv[i]);
    printf("%d inputs\n", played);
    return played > 0 ? 0 : 1;
}
