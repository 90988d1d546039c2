"""Does check_readme.py see what differs, and nothing else?  Asked of a small stand-in for offsim."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECKER = Path(__file__).with_name("check_readme.py")
STAND_IN = """#!/bin/sh
case $1 in
  two) echo one; echo two ;;
  clock) echo "3 activities, simulated in $$ ms" ;;
  fail) echo "no" >&2; exit 2 ;;
  touch) touch "$2"; ls there.txt ;;
  *) echo "$@" ;;
esac
"""


class CheckReadme(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        program = self.root / "bin" / "offsim"
        program.parent.mkdir()
        program.write_text(STAND_IN)
        program.chmod(0o755)

    def check(self, text, *flags):
        document = self.root / "README.md"
        document.write_text(text)
        done = subprocess.run([sys.executable, "-B", CHECKER, *flags, document, self.root / "bin"],
                              capture_output=True, text=True, check=False)
        self.said, self.text = done.stdout + done.stderr, document.read_text()
        return done.returncode

    def test_agrees(self):
        self.assertEqual(self.check("# no blocks\n```sh\n$ offsim two\n```\n"), 0)
        self.assertEqual(self.check("```console\n$ offsim two\none\ntwo\n$ offsim a b\na b\n```\n"), 0)
        self.assertEqual(self.check("```console\n$ offsim a \\\n    b\na b\n```\n"), 0)
        self.assertEqual(self.check("```console\n$ offsim fail\nno\n```\n"), 0)
        self.assertEqual(self.check(
            "```console\n$ offsim clock\n3 activities, simulated in 7 ms\n```\n"), 0)

    def test_differs(self):
        for block in ["$ offsim two\none", "$ offsim two\none\ntwo\nthree", "$ offsim two\none\n2",
                      "$ offsim two", "$ offsim clock\n4 activities, simulated in 7 ms", "$ ls",
                      "$ offsim two\n...\nthree", "one"]:
            self.assertEqual(self.check(f"```console\n{block}\n```\n"), 1, block)

    def test_names_the_line(self):
        self.check("text\n\n```console\n$ offsim two\none\ntwo\n$ offsim a\nb\n```\n")
        self.assertIn("README.md:7: offsim a", self.said)

    def test_dots_stand_for_lines(self):
        for block in ["...", "one\n...", "...\ntwo", "one\n...\ntwo"]:
            self.assertEqual(self.check(f"```console\n$ offsim two\n{block}\n```\n"), 0, block)

    def test_files_written_do_not_stay(self):
        (self.root / "there.txt").write_text("")
        self.assertEqual(self.check("```console\n$ offsim touch new\nthere.txt\n```\n"), 0)
        self.assertFalse((self.root / "new").exists())

    def test_update_writes_what_is_printed(self):
        text = "a\n```console\n$ offsim two\n1\n$ offsim clock\n3 activities, simulated in 7 ms\n```\nb\n"
        self.assertEqual(self.check(text, "--update"), 0)
        self.assertEqual(self.text, text.replace("\n1\n", "\none\ntwo\n"))
        self.assertEqual(self.check(self.text), 0)

    def test_update_keeps_dots(self):
        text = "```console\n$ offsim two\n...\nthree\n```\n"
        self.assertEqual(self.check(text, "--update"), 1)
        self.assertEqual(self.text, text)


if __name__ == "__main__":
    unittest.main()
