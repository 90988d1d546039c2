"""Checks the rules of this repository that no compiler knows; prints file:line:column: what.

    check_style.py ROOT

Exit code 1 when anything was found. Only the standard library is used.
"""

import re
import sys
from pathlib import Path

CPP = {".h", ".cpp", ".cu"}
PROSE = {".md", ".yaml", ".yml"}
TEXT = CPP | PROSE | {".py", ".txt", ".json", ".jsonl", ""}
CPP_COLUMNS = 100
PROSE_COLUMNS = 200
FILE_LINES = 500
FUNCTION_LINES = 70
# These cost seconds a file that includes them, so none may ride on one of our headers.
HEAVY = ("CLI/", "nlohmann/", "yaml-cpp/", "Eigen/", "boost/")
# Written in halves, or this file would find itself.
BANNED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|(?i:ha" r"ck|ha" r"cky)|/wo" r"rk/\S*)\b")

TOKEN = re.compile(
    r'R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"'  # raw text
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\[^'\n]+|[^'\\\n])'"  # one character; 1'000 is not one
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)


def code_only(text):
    """The code with comments and literals blanked, every character in its place."""
    return TOKEN.sub(lambda token: re.sub(r"[^\n]", " ", token[0]), text)


def place(text, offset):
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def check_lines(path, lines):
    most = CPP_COLUMNS if path.suffix in CPP else PROSE_COLUMNS if path.suffix in PROSE else None
    for number, line in enumerate(lines, 1):
        # An address cannot be broken.
        if most and len(line) > most and "https://" not in line:
            yield number, most + 1, f"line of {len(line)} columns; at most {most}"
        if "\t" in line:
            yield number, line.index("\t") + 1, "a tab; spaces are used here"
        if line != line.rstrip():
            yield number, len(line.rstrip()) + 1, "blanks at the end of the line"
        for word in BANNED.finditer(line):
            yield number, word.start() + 1, f"'{word[0]}' does not belong in this repository"


def check_mentions(text, names):
    """A document that is mentioned is one that a reader can open."""
    for mention in re.finditer(r"(?<![\w/.:*-])[\w./-]*?([\w-]+\.md)\b", text):
        line = text[text.rfind("\n", 0, mention.start()) + 1 : mention.end()]
        if mention[1] not in names and "http" not in line:
            yield *place(text, mention.start()), f"{mention[1]} is not in this repository"


def function_starts(before):
    """Whether a '{' after this text, at the level of a file or a class, begins a function."""
    if re.search(r"\b(namespace|class|struct|enum|union)\b[^()]*$", before):
        return False
    return ")" in before and "=" not in before[before.rfind(")") :]


def check_functions(code):
    opened = []  # for each open brace: its offset when it begins an outermost function, else None
    last = 0  # where the current statement begins
    for brace in re.finditer(r"[{};]", code):
        at = brace.start()
        if brace[0] == "{":
            inside = any(start is not None for start in opened)
            starts = not inside and function_starts(code[last:at])
            opened.append(at if starts else None)
        elif brace[0] == "}" and opened:
            start = opened.pop()
            if start is not None:
                lines = code.count("\n", start, at) + 1
                if lines > FUNCTION_LINES:
                    yield *place(code, start), (
                        f"a function of {lines} lines; at most {FUNCTION_LINES}")
        last = at + 1


def visible_parts(root):
    """{part: the parts that it may include}, from the offsim_part lines of sim/CMakeLists.txt."""
    file = root / "sim" / "CMakeLists.txt"
    direct = {}
    for line in re.finditer(r"^offsim_part\((\w+)([^)]*)\)", file.read_text(), re.M):
        direct[line[1]] = set(re.findall(r"\boffsim_(\w+)", line[2]))
    visible = {}
    for part in direct:  # a part is listed after those that it names
        visible[part] = {part}.union(*(visible[d] for d in direct[part]))
    return visible


def check_includes(path, text, parts):
    folder = path.parts[0]
    for include in re.finditer(r'^ *#include *[<"]([^>"]+)[>"]', text, re.M):
        name = include[1]
        spot = place(text, include.start(1))
        if path.suffix == ".h" and name.startswith(HEAVY):
            yield *spot, f"{name} is slow to compile; include it in a .cpp file only"
        if folder == "sim" and name.startswith("tests/"):
            yield *spot, "sim/ does not know its tests"
        if folder == "kernels" and name.startswith("sim/"):
            yield *spot, "kernels/ knows nothing of sim/"
        target = name.split("/")
        if folder == "sim" and target[0] == "sim" and len(path.parts) > 2:
            if target[1] not in parts.get(path.parts[1], ()):
                yield *spot, f"sim/{path.parts[1]} may not use sim/{target[1]} (sim/CMakeLists.txt)"


def check_cpp(path, text, lines, parts):
    if len(lines) > FILE_LINES:
        yield FILE_LINES + 1, 1, f"a file of {len(lines)} lines; at most {FILE_LINES}"
    if path.suffix == ".h" and not text.startswith("//"):
        yield 1, 1, "a header begins with a comment that says what it models"
    code = code_only(text)
    for using in re.finditer(r"\busing\s+namespace\s+std\b", code):
        yield *place(code, using.start()), "using namespace std"
    yield from check_functions(code)
    yield from check_includes(path, text, parts)


def check_folders(root, files):
    folders = {file.parts[0] for file in files if len(file.parts) > 1}
    folders |= {f"sim/{file.parts[1]}" for file in files
                if file.parts[0] == "sim" and len(file.parts) > 2}
    for folder in sorted(folders):
        if not folder.startswith(".") and not (root / folder / "README.md").is_file():
            yield Path(folder) / "README.md", 1, 1, "missing: say what is here and how to add one"


def repository_files(root):
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root)
        hidden = any(part.startswith(".") and part != ".ci" for part in path.parts)
        if file.is_file() and not hidden and "build" not in path.parts[:1]:
            if path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def check(root):
    files = list(repository_files(root))
    names = {file.name for file in files}
    parts = visible_parts(root)
    for path in files:
        if path.suffix in {".json", ".jsonl"}:
            continue  # data, as their makers write them
        text = (root / path).read_text(encoding="utf-8")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        elif text:
            yield path, len(lines), len(lines[-1]) + 1, "no line end at the end of the file"
        found = list(check_lines(path, lines))
        if path.suffix in CPP:
            found += check_cpp(path, text, lines, parts)
        if path.suffix in CPP | PROSE:
            found += check_mentions(text, names)
        for line, column, what in sorted(found):
            yield path, line, column, what
    yield from check_folders(root, files)


def main():
    count = 0
    for path, line, column, what in check(Path(sys.argv[1])):
        print(f"{path}:{line}:{column}: {what}")
        count += 1
    print(f"style: {count} {'mistake' if count == 1 else 'mistakes'}")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
