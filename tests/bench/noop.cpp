// SPDX-License-Identifier: Apache-2.0
// The least a hook can be: it reads stdin to its end. What virtguard-hook is measured against.

#include <unistd.h>

int main() {
    static char buffer[65536];
    while (::read(STDIN_FILENO, buffer, sizeof buffer) > 0) {
    }
    return 0;
}
