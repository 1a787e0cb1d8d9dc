#!/usr/bin/env python3
"""Draws comments, log lines and paragraphs of documents at random, for a review of their words.

usage: scripts/prose-sample.py [SEED]

A reader who sees only the sample should understand each of its texts. The same seed draws the same
texts from the same tree.
"""
import random
import re
import subprocess
import sys

PER_KIND = 10


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def comments():
    """Blocks of comment lines in Rust sources, with their places."""
    for path in files("crates/*/src/*.rs"):
        block, first = [], 0
        for number, line in enumerate(open(path, encoding="utf-8"), 1):
            text = re.match(r"\s*//[/!]?(.*)", line)
            if text:
                first = first if block else number
                block.append(text.group(1).strip())
            elif block:
                yield f"{path}:{first}", " ".join(block)
                block = []


def log_lines():
    """Rows of the reference page."""
    page = "docs/reference/log-lines.md"
    for number, line in enumerate(open(page, encoding="utf-8"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 4 and cells[0] != "message":
            yield f"{page}:{number}", " — ".join(cells)


def paragraphs():
    """Paragraphs of prose in documents, without code, tables and headings."""
    for path in files("README.md", "docs/*.md"):
        if path.startswith("docs/reference/"):
            continue
        text = re.sub(r"```.*?```", "", open(path, encoding="utf-8").read(), flags=re.S)
        for paragraph in re.split(r"\n\s*\n", text):
            words = " ".join(paragraph.split())
            if words and words[0] not in "#|<!" and len(words.split()) > 5:
                yield path, words


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    draw = random.Random(seed)
    for title, texts in [("comments", comments()), ("log lines", log_lines()), ("documents", paragraphs())]:
        print(f"## {title}, seed {seed}")
        for place, text in draw.sample(list(texts), PER_KIND):
            print(f"* {place}\n  {text}")
        print()


if __name__ == "__main__":
    main()
