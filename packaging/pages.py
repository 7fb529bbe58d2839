"""Man pages and shell completions of Shoal's programs, made of what the programs say of themselves.

A program of src says it with --describe (src/cli/command.cc), scripts/party-machines with --help.
"""

import re


def of_script(name, version, text):
    """What `text`, the help of a script, says, in the form of --describe."""
    body, _, exits = text.partition("\nExit codes: ")
    body, _, examples = body.partition("\nExamples:\n")
    summary, help_lines, options = "", [], []
    for number, line in enumerate(body.split("\n")):
        option = re.match(r"  --([a-z-]+)(?: ([A-Z-]+))? +(.*)", line)
        if number == 0:
            summary = line.rstrip(".")
        elif option:
            options.append({"name": option[1], "value": option[2] or "", "required": False, "text": option[3]})
        elif options and line.startswith("   "):
            options[-1]["text"] += " " + line.strip()
        else:
            help_lines.append(line)
    if not options or not examples or not exits:
        raise ValueError(f"the help of {name} has no options, examples or exit codes")
    codes = [part.split(" ", 1) for part in re.split(r"; (?=\d )", " ".join(exits.split()))]
    codes[-1][1] = codes[-1][1].split(". ")[0]
    if [code for code, _ in codes] != ["0", "1", "2", "3"]:
        raise ValueError(f"the help of {name} has other exit codes than 0 to 3")
    return {
        "program": name,
        "version": version,
        "is_script": True,  # without --version
        "summary": summary[0].lower() + summary[1:],
        "exit_codes": [{"code": int(code), "meaning": meaning} for code, meaning in codes],
        "commands": [{
            "name": name,
            "summary": summary[0].lower() + summary[1:],
            "help": "\n".join(help_lines).strip("\n") + "\n",
            "examples": examples.replace("scripts/", "").rstrip("\n") + "\n",
            "positional": "",
            "options": options,
        }],
    }


def is_single(program):
    """Whether the program has one command, of its own name."""
    return [command["name"] for command in program["commands"]] == [program["program"]]


# Man pages.


def _roff(text):
    """`text` as roff shows it, with no character that roff or its fonts take for another one."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith(".") else text


def _verbatim(lines):
    return [".PP", ".RS 4", ".nf"] + [_roff(line) for line in lines] + [".fi", ".RE"]


def _paragraphs(text):
    """Paragraphs, filled; lines that begin with a space stay as they are."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        indented, lines = None, []
        for line in paragraph.split("\n") + [None]:
            now = line is not None and line.startswith(" ")
            if lines and (line is None or now != indented):
                out += _verbatim(line[2:] for line in lines) if indented else [".PP"] + [_roff(line) for line in lines]
                lines = []
            indented = now
            lines.append(line)
    return out


def _options(options):
    out = []
    for option in options:
        value = f" \\fI{_roff(option['value'])}\\fR" if option["value"] else ""
        required = " (required)" if option["required"] else ""
        out += [".TP", f"\\fB{_roff('--' + option['name'])}\\fR{value}", _roff(option["text"] + required)]
    return out


_HELP = {"name": "help", "value": "", "required": False, "text": "print the help and exit; also -h"}
_VERSION = {"name": "version", "value": "", "required": False, "text": "print the version and exit"}


def _page(program, name, section, summary, date, parts):
    lines = [
        f'.TH "{_roff(name.upper())}" "{section}" "{date}" "Shoal {program["version"]}" "Shoal"',
        ".nh", ".ad l", ".SH NAME", f"{_roff(name)} \\- {_roff(summary)}",
    ]
    for title, content in parts:
        # Paragraphs that follow a heading at once need no break.
        while content and content[0] == ".PP":
            content = content[1:]
        lines += [f".SH {title}"] + content
    return "\n".join(lines) + "\n"


def _exit_status(program):
    out = []
    for exit_code in program["exit_codes"]:
        out += [".TP", f"\\fB{exit_code['code']}\\fR", _roff(exit_code["meaning"])]
    return out


def _see_also(pages):
    return [",\n".join(f"\\fB{_roff(name)}\\fR({section})" for name, section in pages)]


def _command_page(program, command, section, date, others):
    single = is_single(program)
    name = program["program"] if single else f"{program['program']}-{command['name'].replace(' ', '-')}"
    words = program["program"] if single else f"{program['program']} {command['name']}"
    needed = "".join(f" \\fB{_roff('--' + o['name'])}\\fR \\fI{_roff(o['value'])}\\fR" for o in command["options"] if o["required"])
    rest = f" [\\fI{_roff(command['positional'])}\\fR ...]" if command["positional"] else ""
    return name, _page(program, name, section, command["summary"], date, [
        ("SYNOPSIS", [f"\\fB{_roff(words)}\\fR{needed} [\\fIoptions\\fR]{rest}"]),
        ("DESCRIPTION", _paragraphs(command["help"] or command["summary"] + ".")),
        ("OPTIONS", _options(command["options"] + [_HELP] + ([_VERSION] if single and "is_script" not in program else []))),
        ("EXAMPLES", _verbatim(line[2:] for line in command["examples"].rstrip("\n").split("\n"))),
        ("EXIT STATUS", _exit_status(program)),
        ("SEE ALSO", _see_also([page for page in others if page[0] != name])),
    ])


def _overview_page(program, section, date, others):
    name = program["program"]
    commands, examples = [], []
    for command in program["commands"]:
        page = f"{name}-{command['name'].replace(' ', '-')}"
        commands += [".TP", f"\\fB{_roff(command['name'])}\\fR",
                     f"{_roff(command['summary'])}; see \\fB{_roff(page)}\\fR({section})"]
        # The first example of each, which may be on several lines.
        for line in command["examples"].rstrip("\n").split("\n"):
            examples.append(line[2:])
            if not line.endswith("\\"):
                break
    return name, _page(program, name, section, program["summary"], date, [
        ("SYNOPSIS", [f"\\fB{_roff(name)}\\fR \\fIcommand\\fR [\\fIoptions\\fR]"]),
        ("DESCRIPTION", ["Results go to standard output, the rest to standard error.", "Every command has a page of its own, "
                         "and prints the same with", _roff("--help.")]),
        ("COMMANDS", commands),
        ("OPTIONS", _options([_HELP, _VERSION])),
        ("EXAMPLES", _verbatim(examples)),
        ("EXIT STATUS", _exit_status(program)),
        ("SEE ALSO", _see_also(others)),
    ])


def man_pages(program, section, date, see_also):
    """{file name: page} of a program. `see_also` has (name, section) of other programs' pages."""
    pages = []
    if is_single(program):
        pages.append(_command_page(program, program["commands"][0], section, date, see_also))
    else:
        name = program["program"]
        pages.append(_overview_page(program, section, date, see_also))
        for command in program["commands"]:
            group = command["name"].split(" ")[0]
            siblings = [(f"{name}-{other['name'].replace(' ', '-')}", section)
                        for other in program["commands"] if other["name"].split(" ")[0] == group]
            pages.append(_command_page(program, command, section, date, [(name, section)] + siblings))
    return {f"{name}.{section}": page for name, page in pages}


# Completions.


def _choices(option):
    """The words that an option takes if its text lists them: "tsv (default) or json"."""
    found = re.search(r"^(?:[^:]*: )?((?:[a-z][\w-]*(?: \(default\))?(?:, | or |$|(?=;)))+)", option["text"])
    if option["value"] != "TEXT" or not found or "(default)" not in option["text"]:
        return []
    words = re.split(r", | or ", found[1].replace(" (default)", ""))
    return words if len(words) > 1 else []


def _kind(option):
    """How the value of an option is completed: files, folders, nothing, or one of some words."""
    words = _choices(option)
    return {"FILE": "file", "DIR": "folder", "": "none"}.get(option["value"]) or (" ".join(words) if words else "text")


def bash_completion(program):
    name = program["program"]
    function = "_" + name.replace("-", "_")
    single = is_single(program)
    groups = {}
    for command in program["commands"]:
        first, _, second = command["name"].partition(" ")
        groups.setdefault(first, []).append(second)
    out = [
        f"# Completion of {name} in bash, made of what the program says of its options.",
        f"{function}() {{",
        "  local word=${COMP_WORDS[COMP_CWORD]} before= command= options= positional=none kind",
        "  ((COMP_CWORD == 0)) || before=${COMP_WORDS[COMP_CWORD - 1]}",
        "  # --option=value is three words to bash.",
        "  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi",
        "  COMPREPLY=()",
    ]
    if not single:
        out += ["  if ((COMP_CWORD == 1)); then",
                f"    COMPREPLY=($(compgen -W '{' '.join(groups)} --help --version' -- \"$word\"))", "    return", "  fi",
                "  command=${COMP_WORDS[1]}", "  case $command in"]
        for first, seconds in groups.items():
            if seconds != [""]:
                out += [f"    {first})", "      if ((COMP_CWORD == 2)); then",
                        f"        COMPREPLY=($(compgen -W '{' '.join(filter(None, seconds))} --help' -- \"$word\"))",
                        "        return", "      fi", "      command+=\" ${COMP_WORDS[2]}\"", "      ;;"]
        out += ["  esac"]
    out += ["  case $command in"]
    for command in program["commands"]:
        kinds = {option["name"]: _kind(option) for option in command["options"]}
        label = "''" if single else f"'{command['name']}'"
        out += [f"    {label})", f"      options='{' '.join('--' + o for o in [*kinds, 'help'])}'"]
        if command["positional"]:
            out += [f"      positional='{kinds.get(command['positional'], 'text')}'"]
        out += ["      case $before in"]
        for option, kind in kinds.items():
            if kind != "none":
                out += [f"        --{option}) kind='{kind}' ;;"]
        out += ["        *) kind= ;;", "      esac", "      ;;"]
    out += ["    *) return ;;", "  esac",
            "  if [[ -z $kind && $word == -* || -z $kind && $positional == none ]]; then kind=$options; fi",
            "  case ${kind:-$positional} in",
            "    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;",
            "    folder) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;",
            "    text) ;;",
            "    *) COMPREPLY=($(compgen -W \"${kind:-$positional}\" -- \"$word\")) ;;",
            "  esac", "}", f"complete -F {function} {name}"]
    return "\n".join(out) + "\n"


def _zsh_text(text):
    text = text.split(";")[0].split(". ")[0]
    return text.replace("'", "’").replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh_action(option):
    kind = _kind(option)
    return {"file": "_files", "folder": "_files -/", "text": ""}.get(kind, f"({kind})")


def zsh_completion(program):
    name = program["program"]
    single = is_single(program)
    out = [f"#compdef {name}", f"# Completion of {name} in zsh, made of what the program says of its options.", ""]
    out += ["local -a commands", "local command"]
    if single:
        out += ["command="]
    else:
        groups = {}
        for command in program["commands"]:
            first, _, second = command["name"].partition(" ")
            groups.setdefault(first, []).append((second, command["summary"]))
        out += ["if (( CURRENT == 2 )); then", "  commands=("]
        for first, seconds in groups.items():
            text = seconds[0][1] if seconds[0][0] == "" else "several commands"
            out += [f"    '{first}:{_zsh_text(text)}'"]
        out += ["  )", "  _describe -t commands command commands", "  return", "fi", "command=$words[2]", "case $command in"]
        for first, seconds in groups.items():
            if seconds[0][0] != "":
                out += [f"  {first})", "    if (( CURRENT == 3 )); then", "      commands=("]
                out += [f"        '{second}:{_zsh_text(text)}'" for second, text in seconds]
                out += ["      )", "      _describe -t commands command commands", "      return", "    fi",
                        "    command+=\" $words[3]\"", "    shift words", "    (( CURRENT-- ))", "    ;;"]
        out += ["esac", "shift words", "(( CURRENT-- ))"]
    out += ["case $command in"]
    for command in program["commands"]:
        label = "''" if single else f"'{command['name']}'"
        out += [f"  {label})", "    _arguments \\"]
        for option in command["options"]:
            value = f":{option['value']}:{_zsh_action(option)}" if option["value"] else ""
            out += [f"      '*--{option['name']}[{_zsh_text(option['text'])}]{value}' \\"]
        if command["positional"]:
            named = [o for o in command["options"] if o["name"] == command["positional"]]
            out += [f"      '*:{command['positional']}:{_zsh_action(named[0]) if named else ''}' \\"]
        out += ["      '(- *)--help[print the help and exit]'", "    ;;"]
    out += ["esac"]
    return "\n".join(out) + "\n"
