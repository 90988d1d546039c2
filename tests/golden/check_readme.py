"""Runs the commands of a document's ```console blocks and compares what they print.

    check_readme.py [--update] DOCUMENT FOLDER_OF_OFFSIM

A block holds lines "$ offsim ...", continued after a backslash, each followed by what it prints on
both outputs. A line "..." stands for any lines. A time that depends on the computer ("simulated in
3.2 ms") may differ. The commands run in a copy of the document's folder made of links, so files that
they write do not stay. With --update, output that differs is replaced in the document, except
where it has a line "...". Exit code 1 when something differs. Only the standard library is used.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
CLOCK = re.compile(r"simulated in [\d.,]+ ?\w+")
TIMEOUT_S = 60


def commands_of(block):
    """[(command, the lines of the document that it is written in, expected lines)]"""
    found = []
    continued = False
    for line in block.splitlines():
        if continued:
            found[-1][0].append(line)
        elif line.startswith("$ "):
            found.append(([line[2:]], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"a console block begins with a command, not with '{line}'")
        continued = found[-1][0][-1].endswith("\\") and not found[-1][1]
    return found


def run(command, folder, program):
    path = f"{program}:{os.environ['PATH']}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env={**os.environ, "PATH": path},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=TIMEOUT_S, text=True, check=False)
    return done.stdout.splitlines()


def agrees(expected, printed):
    def pattern(line):
        return r"(?:.*\n)*?" if line == "..." else re.escape(CLOCK.sub("", line)) + r"\n"

    whole = "".join(pattern(line) for line in expected)
    return re.fullmatch(whole, "".join(CLOCK.sub("", line) + "\n" for line in printed)) is not None


def linked_copy(source, copy):
    for entry in source.iterdir():
        if not entry.name.startswith(".") and entry.name != "build":
            (copy / entry.name).symlink_to(entry.resolve())


def check_command(place, command, expected, here, update):
    """(what the document should hold, whether something is wrong)"""
    if not command.startswith("offsim"):
        print(f"{place}: '{command}' is not offsim; a console block holds nothing else")
        return expected, True
    printed = run(command, *here)
    if agrees(expected, printed):
        return expected, False
    if update and "..." not in expected:
        return printed, False
    print(f"{place}: {command}", "is written to print", *expected, "but prints", *printed, "",
          sep="\n")
    return expected, True


def check(document, program, update):
    text = document.read_text(encoding="utf-8")
    mistakes = 0

    def checked(block):
        nonlocal mistakes
        number = text.count("\n", 0, block.start()) + 2
        lines = ["```console"]
        for written, expected in commands_of(block[1]):
            output, wrong = check_command(f"{document.name}:{number}", "\n".join(written), expected,
                                          (folder, program), update)
            mistakes += wrong
            lines += ["$ " + written[0], *written[1:], *output]
            number += len(written) + len(expected)
        return "\n".join(lines + ["```"])

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        linked_copy(document.resolve().parent, folder)
        new = BLOCK.sub(checked, text)
    if update and new != text:
        document.write_text(new, encoding="utf-8")
    return mistakes


def main():
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    document = Path(arguments[0])
    if not document.is_file():
        print(f"{document} is not there")
        return 1
    mistakes = check(document, Path(arguments[1]).resolve(), "--update" in sys.argv)
    print(f"{document.name}: {mistakes} {'mistake' if mistakes == 1 else 'mistakes'}")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
