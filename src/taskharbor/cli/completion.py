"""`taskharbor completion`: scripts that let a shell complete verbs, flags and choices, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple

from taskharbor.cli.options import Verbs, add_verb, every_parser, options_of, subparsers_of

SHELLS: Final = ("bash", "zsh", "fish")
_DESCRIPTION: Final = """\
Print a script that lets your shell complete the verbs and flags of taskharbor.

examples:
  taskharbor completion bash > ~/.local/share/bash-completion/completions/taskharbor
  taskharbor completion zsh > ~/.zfunc/_taskharbor       (with ~/.zfunc in $fpath before compinit)
  taskharbor completion fish > ~/.config/fish/completions/taskharbor.fish
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "completion", help="completion for your shell", description=_DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.command import build_parser
    from taskharbor.cli.output import print_json

    text = script(build_parser(), arguments.shell)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": text})
    else:
        print(text, end="")
    return 0


class Flag(NamedTuple):
    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    help: str


class Level(NamedTuple):
    """What may follow after some verbs."""

    path: str
    words: tuple[tuple[str, str], ...]
    """Verbs and choices of a first word, each with its help."""
    flags: tuple[Flag, ...]


def levels(root: argparse.ArgumentParser) -> Iterator[Level]:
    for path, parser in every_parser(root):
        helps = {
            choice.dest: choice.help or ""
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
            for choice in action._choices_actions
        }
        words = [(name, helps.get(name, "")) for name in subparsers_of(parser)]
        for action in parser._actions:
            if not action.option_strings and action.choices and not isinstance(action, argparse._SubParsersAction):
                words += [(str(choice), "") for choice in action.choices]
        flags = [
            Flag(
                tuple(action.option_strings),
                action.nargs != 0,
                tuple(map(str, action.choices or ())),
                (action.help or "").split("\n")[0],
            )
            for action in options_of(parser)
        ]
        flags.append(Flag(("-h", "--help"), False, (), "show help"))
        yield Level(" ".join(path), tuple(words), tuple(flags))


def script(root: argparse.ArgumentParser, shell: str) -> str:
    known = list(levels(root))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](known)


def _names(flags: tuple[Flag, ...]) -> str:
    return " ".join(name for flag in flags for name in flag.names)


def _bash(known: list[Level]) -> str:
    valued = sorted({name for level in known for flag in level.flags if flag.takes_value for name in flag.names})
    cases = [
        f'    "{level.path}") words="{" ".join(word for word, _ in level.words)}"; flags="{_names(level.flags)}" ;;'
        for level in known
    ]
    choices = [
        f'    "{level.path}:{name}") COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$cur")); return ;;'
        for level in known
        for flag in level.flags
        if flag.choices
        for name in flag.names
    ]
    paths = " | ".join(f'"{level.path}"' for level in known if level.path)
    return f"""\
# bash completion for taskharbor; made by `taskharbor completion bash`
_taskharbor() {{
  local cur prev word path="" next words="" flags="" skip=0 i
  cur="${{COMP_WORDS[COMP_CWORD]}}"
  prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    if ((skip)); then skip=0; continue; fi
    case "$word" in
    {" | ".join(valued)}) skip=1 ;;
    -*) ;;
    *)
      next="${{path:+$path }}$word"
      case "$next" in {paths}) path="$next" ;; esac
      ;;
    esac
  done
  case "$path:$prev" in
{chr(10).join(choices)}
  esac
  case "$prev" in
    {" | ".join(valued)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;
  esac
  case "$path" in
{chr(10).join(cases)}
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}}
complete -o default -F _taskharbor taskharbor
"""


def _quoted(text: str) -> str:
    """For single quotes, in zsh and fish alike: neither quote nor what zsh reads as the end of a description."""
    return text.replace("\\", "").replace("'", "").replace("[", "(").replace("]", ")").replace(":", " -")


def _zsh(known: list[Level]) -> str:
    functions = []
    for level in known:
        lines = [f"_taskharbor_{_identifier(level.path)}() {{", "  local -a words", "  _arguments -C -S \\"]
        for flag in level.flags:
            value = (
                f":value:({' '.join(flag.choices)})" if flag.choices else ":value:_files" if flag.takes_value else ""
            )
            lines += [f"    '{name}[{_quoted(flag.help)}]{value}' \\" for name in flag.names]
        if level.words:
            lines += ["    '1: :->verb' '*:: :->rest'", "  case $state in", "  verb)"]
            lines += ["    words=(", *(f"      '{word}:{_quoted(help)}'" for word, help in level.words), "    )"]
            lines += ["    _describe verb words ;;", "  rest)", "    case $line[1] in"]
            deeper = {each.path for each in known}
            for word, _ in level.words:
                path = f"{level.path} {word}".strip()
                if path in deeper:
                    lines.append(f"    {word}) _taskharbor_{_identifier(path)} ;;")
            lines += ["    esac ;;", "  esac"]
        else:
            lines.append("    '*:file:_files'")
        functions.append("\n".join([*lines, "}"]))
    body = "\n\n".join(functions)
    return (
        "#compdef taskharbor\n# zsh completion for taskharbor; made by `taskharbor completion zsh`\n\n"
        f'{body}\n\n_taskharbor_root "$@"\n'
    )


def _identifier(path: str) -> str:
    return path.replace(" ", "_").replace("-", "_") or "root"


def _fish(known: list[Level]) -> str:
    lines = ["# fish completion for taskharbor; made by `taskharbor completion fish`", "complete -c taskharbor -f"]
    for level in known:
        verbs = level.path.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {verb}" for verb in verbs)
        below = " ".join(word for word, _ in level.words)
        fresh = "__fish_use_subcommand" if not verbs else seen
        if verbs and below:
            fresh += f"; and not __fish_seen_subcommand_from {below}"
        for word, help in level.words:
            lines.append(f"complete -c taskharbor -n '{fresh}' -a {word} -d '{_quoted(help)}'")
        condition = seen or "true"
        for flag in level.flags:
            short = "".join(f" -s {name[1:]}" for name in flag.names if not name.startswith("--"))
            long = "".join(f" -l {name[2:]}" for name in flag.names if name.startswith("--"))
            value = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r -F" if flag.takes_value else ""
            lines.append(f"complete -c taskharbor -n '{condition}'{short}{long}{value} -d '{_quoted(flag.help)}'")
    return "\n".join(lines) + "\n"
