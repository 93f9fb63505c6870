// SPDX-License-Identifier: Apache-2.0
// Gives a fuzzer every file of the folders that are named: what was found once stays mended, and
// the inputs are seen by the other compiler and its sanitizers.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz.hpp"

int main(int count, char** folders) {
    int replayed = 0;
    for (int i = 1; i < count; ++i)
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folders[i])) {
            if (!entry.is_regular_file())
                continue;
            std::ifstream file(entry.path(), std::ios::binary);
            const std::string input{std::istreambuf_iterator<char>(file), {}};
            (void)std::fprintf(stderr, "%s\n", entry.path().c_str()); // the last one is the culprit
            (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()),
                                         input.size());
            ++replayed;
        }
    std::printf("%d inputs replayed\n", replayed);
    return replayed > 0 ? 0 : 1;
}
