#!/usr/bin/env python3
"""man/header2man.py HEADER DIRECTORY: manual pages of section 3 for all functions of the public header.

A comment in front of functions becomes a page, in mdoc, with the name of its first function; the others are
symbolic links to it. The rules for every function, from the header's opening comment, are added to the overview,
holdfast.3. The directory is emptied before. Run at configure time by cmake/Manual.cmake.
"""
import pathlib
import re
import sys

TOKEN = re.compile(
    r"/\*.*?\*/"  # a comment
    r"|^\#define(?:[^\n]*\\\n)*[^\n]*"
    r"|^HF_API[^;]*;"
    r"|^typedef[^;{]*\{.*?^\}[^;]*;|^typedef[^;{]*;"
    r"|^\n",
    re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"/\* ---- (.+?) -+ \*/$")
LABEL = re.compile(r"(Blocks|Errors|Threads): +")


class Group:
    """A comment and the functions behind it."""

    def __init__(self, section, comment):
        self.section, self.comment, self.functions = section, comment, []


def comment_text(comment):
    return re.sub(r"^[ \t]*\*? ?", "", comment[2:-2], flags=re.MULTILINE).strip()


def function_of(declaration):
    """The result's type, the name, the arguments."""
    words = " ".join(declaration.removeprefix("HF_API").rstrip(";").split())
    result, name, rest = re.fullmatch(r"(.*?)(\w+)\((.*)\)", words).groups()
    depth, arguments = 0, [""]
    for letter in rest:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += letter
    return result.strip(), name, [argument.strip() for argument in arguments]


def read_groups(header):
    groups, section, comment, last = [], "", None, None
    for token in TOKEN.findall(header[header.index('extern "C" {'):]):
        found = SECTION.match(token)
        if found:
            section, comment, last = found[1], None, None
        elif token.startswith("/*"):
            comment, last = comment_text(token), None
        elif token == "\n":
            comment, last = None, None
        elif token.startswith("HF_API"):
            if last is None:
                last = Group(section, comment)
                groups.append(last)
            last.functions.append(function_of(token))
        # A define or a type between a comment and its function changes nothing.
    return groups


def escaped(line):
    line = line.replace("\\", "\\e")
    line = re.sub(r"`([^`]*)`", r"\\fI\1\\fP", line)
    return "\\&" + line if line[:1] in (".", "'") else line


def sentences(words):
    """One on a line, as mdoc wants it."""
    lines = re.split(r"(?<=[.!?]) +(?=[A-Z`(])", " ".join(words.split()))
    return [escaped(line) for line in lines if line]


def parts_of(text):
    """(kind, text): plain, item, table, or a label as it stands; None between paragraphs."""
    parts = []
    for line in text.split("\n"):
        label = LABEL.match(line)
        item = re.match(r"\s*- ", line)
        indented = line.startswith("  ")
        if not line.strip():
            parts.append((None, ""))
        elif label:
            parts.append((label[1], line[label.end():]))
        elif item:
            parts.append(("item", line[item.end():]))
        elif indented and (not parts or parts[-1][0] in (None, "plain", "table")):
            if parts and parts[-1][0] == "table":
                parts[-1] = ("table", parts[-1][1] + "\n" + line)
            else:
                parts.append(("table", line))
        elif parts and parts[-1][0] not in (None, "table"):
            parts[-1] = (parts[-1][0], parts[-1][1] + " " + line)
        else:
            parts.append(("plain", line))
    return parts


def description(text):
    """Paragraphs, lists, tables as they stand, and what `Blocks:` or `Errors:` say."""
    lines, open_list = [], False
    for kind, words in parts_of(text):
        is_item = kind not in (None, "plain", "table")
        if open_list and not is_item:
            lines.append(".El")
        if is_item and not open_list:
            lines = lines[:-1] if lines[-1:] == [".Pp"] else lines
            lines.append(".Bl -tag -width Ds")
        open_list = is_item
        if kind is None or (kind == "plain" and lines[-1:] == [".El"]):
            lines += [] if lines[-1:] == [".Pp"] else [".Pp"]
        if is_item:
            lines.append(".It \\(bu" if kind == "item" else f".It {kind}")
        if kind == "table":
            lines = lines[:-1] if lines[-1:] == [".Pp"] else lines
            lines += [".Bd -literal", *(escaped(line) for line in words.split("\n")), ".Ed"]
        elif kind is not None:
            lines += sentences(words)
    if open_list:
        lines.append(".El")
    return lines[:-1] if lines[-1:] == [".Pp"] else lines


def is_started(group):
    return all(name.endswith("_start") for _, name, _ in group.functions)


def one_line(group):
    """What `apropos` shows."""
    kind = "operations" if is_started(group) else "functions"
    words = " ".join((group.comment or f"{kind} of the section {group.section}").split())
    words = re.sub(r" \([^()]+(?:\(\)[^()]*)*\)", "", LABEL.sub("", words))
    first = re.split(r"[.;:](?: |$)", words, maxsplit=1)[0].replace("`", "")
    if len(first) > 72:
        first = first[:72].rsplit(" ", 1)[0].rstrip(",")
    return escaped(first if re.match("[A-Z]{2}", first) else first[:1].lower() + first[1:])


def page(group, version, date):
    names = [name for _, name, _ in group.functions]
    lines = [
        ".\\\" Made from <holdfast/holdfast.h> by man/header2man.py.",
        f".Dd {date}",
        f".Dt {names[0].upper()} 3",
        f".Os holdfast {version}",
        ".Sh NAME",
    ]
    lines += [f".Nm {name}{' ,' if name != names[-1] else ''}" for name in names]
    lines += [f".Nd {one_line(group)}", ".Sh SYNOPSIS", ".In holdfast/holdfast.h"]
    for result, name, arguments in group.functions:
        lines += [f".Ft {result}", f".Fo {name}"]
        lines += [f".Fa \"{argument}\"" for argument in arguments]
        lines.append(".Fc")
    lines.append(".Sh DESCRIPTION")
    if group.comment:
        lines += description(group.comment)
    elif is_started(group):
        lines += ["Each starts the operation that its name without", ".Sy _start", "waits for, and returns at once, as",
                  ".Xr hf_lock_acquire_start 3", "does."]
    else:
        lines.append(f"The header describes these in its section \\(lq{group.section}\\(rq.")
    lines += [".Pp", "The rules in", ".Xr holdfast 3", "hold for every function.", ".Sh SEE ALSO", ".Xr holdfast 1 ,", ".Xr holdfast 3"]
    return "\n".join(lines) + "\n"


def rules(header):
    """What holds for every function: the terms and the list in the header's opening comment."""
    opening = comment_text(header[:header.index("*/") + 2])
    return [".Sh TERMS", *description(opening[opening.index("\nTerms\n") + 7:opening.index("\n\nRules for")]),
            ".Sh RULES FOR EVERY FUNCTION", *description(opening[opening.index("\n  - "):].strip("\n"))]


def main():
    header = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    directory = pathlib.Path(sys.argv[2])
    version = ".".join(re.findall(r"^#define HF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.MULTILINE))
    version += re.search(r'^#define HF_VERSION_SUFFIX "([^"]*)"', header, re.MULTILINE)[1]
    overview = pathlib.Path(__file__).with_name("holdfast.3").read_text(encoding="utf-8")
    date = re.match(r"\.Dd (.+)", overview)[1]
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.3"):
        old.unlink()
    heading = ".Sh RETURN VALUES\n"
    (directory / "holdfast.3").write_text(
        overview.replace(heading, "\n".join(rules(header)) + "\n" + heading), encoding="utf-8")
    for group in read_groups(header):
        first = group.functions[0][1]
        (directory / f"{first}.3").write_text(page(group, version, date), encoding="utf-8")
        for _, name, _ in group.functions[1:]:
            (directory / f"{name}.3").symlink_to(f"{first}.3")


if __name__ == "__main__":
    main()
