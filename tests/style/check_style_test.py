"""Does each style rule find its mistake, at its place, and nothing else?"""

import tempfile
import unittest
from pathlib import Path

import check_style

PARTS = "offsim_part(base fmt::fmt)\noffsim_part(engine offsim_base)\n"
CLEAN = {"sim/CMakeLists.txt": PARTS, "sim/README.md": "# sim\n", "sim/base/README.md": "# base\n",
         "sim/engine/README.md": "# engine\n"}
HEADER = "// What it models.\n#pragma once\n"


def found(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in (CLEAN | files).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return [f"{path}:{line}:{column}: {what}"
                for path, line, column, what in check_style.check(root)]


def function(lines, head="void f(int a = 3) {"):
    return head + "\n" + "  g();\n" * (lines - 2) + "}\n"


class Rules(unittest.TestCase):
    def one(self, name, text, expected):
        self.assertEqual(found({name: text}), [f"{name}:{expected}"])

    def none(self, name, text):
        self.assertEqual(found({name: text}), [])

    def test_line_length(self):
        self.none("sim/base/a.cpp", "//" + "x" * 98 + "\n")
        self.one("sim/base/a.cpp", "\n//" + "x" * 99 + "\n",
                 "2:101: line of 101 columns; at most 100")
        self.one("a.md", "x" * 201 + "\n", "1:201: line of 201 columns; at most 200")
        self.none("a.md", "https://" + "x" * 300 + "\n")

    def test_blanks(self):
        self.one("a.yaml", "a:\n\tb: 1\n", "2:1: a tab; spaces are used here")
        self.one("a.md", "x \n", "1:2: blanks at the end of the line")
        self.one("a.md", "x", "1:2: no line end at the end of the file")

    def test_banned_words(self):
        word = "TO" + "DO"
        self.one("sim/base/a.cpp", f"int a;  // {word} later\n",
                 f"1:12: '{word}' does not belong in this repository")
        self.none("sim/base/a.cpp", "int shackle;\n")

    def test_mentions(self):
        self.one("a.md", "see b.md\n", "1:5: b.md is not in this repository")
        self.assertEqual(found({"a.md": "see b.md\n", "docs.md": "x\n", "b.md": "x\n"}), [])

    def test_headers(self):
        self.none("sim/base/a.h", HEADER)
        self.one("sim/base/a.h", "#pragma once\n",
                 "1:1: a header begins with a comment that says what it models")
        self.one("sim/base/a.h", HEADER + "#include <nlohmann/json.hpp>\n",
                 "3:11: nlohmann/json.hpp is slow to compile; include it in a .cpp file only")
        self.none("sim/base/a.cpp", "#include <nlohmann/json.hpp>\n")

    def test_namespace(self):
        self.one("sim/base/a.cpp", "int a;\nusing namespace std;\n", "2:1: using namespace std")
        self.none("sim/base/a.cpp", "// using namespace std\n")

    def test_dependencies(self):
        self.none("sim/engine/a.cpp", '#include "sim/base/error.h"\n')
        self.one("sim/base/a.cpp", '#include "sim/engine/graph.h"\n',
                 "1:11: sim/base may not use sim/engine (sim/CMakeLists.txt)")

    def test_file_length(self):
        self.none("sim/base/a.cpp", "int a;\n" * 500)
        self.one("sim/base/a.cpp", "int a;\n" * 501, "501:1: a file of 501 lines; at most 500")

    def test_function_length(self):
        in_namespace = "namespace x {{\nclass A {{\n{}}};\n}}\n"
        self.none("sim/base/a.cpp", function(70))
        self.one("sim/base/a.cpp", function(71), "1:19: a function of 71 lines; at most 70")
        self.one("sim/base/a.cpp", in_namespace.format(function(71)),
                 "3:19: a function of 71 lines; at most 70")
        self.none("sim/base/a.cpp", in_namespace.format(function(70) * 2))
        self.none("sim/base/a.cpp", "const int a[] = {\n" + "  1,\n" * 80 + "};\n")
        self.none("sim/base/a.cpp", function(70, "auto s = R\"({)\"; char c = '{'; void f() {"))

    def test_folders(self):
        self.assertEqual(found({"scenarios/a.yaml": "a: 1\n"}),
                         ["scenarios/README.md:1:1: missing: say what is here and how to add one"])


if __name__ == "__main__":
    unittest.main()
