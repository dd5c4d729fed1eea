"""Help texts of `scv`, and of the commands that are read by hand."""

OVERVIEW = """\
SCV is a coding agent for the place where you already work. Give it a prompt: it
reads, searches, edits and runs commands in the current directory, and asks before
everything that changes something.

Usage: scv [OPTIONS]                 talk to it in this terminal
       scv [OPTIONS] COMMAND ...

Start here
  scv demo                           watch it find and fix a bug; needs no model
  scv --provider practice            try it without a model or a key
  scv config path                    where the configuration of your model goes

In this terminal
  scv                                a new session in the current directory
  scv -c, --continue                 go on with the newest session of this directory
  scv -r, --resume                   choose the session to go on with
  scv --allow RISK,...               do not ask about these risks (see below)

Commands
  exec "PROMPT"                      one prompt, no questions: for scripts and pipes
  sessions list | show [ID]          what was said and done
  sessions search TEXT               find it again; also fork, delete, export, import
  approvals list | answer            questions that wait in the running server
  config show | path                 every setting, with where it comes from
  run                                serve this home's socket, for many front ends
  attach --stdio                     join an editor to that server, also through ssh
  server --stdio                     serve one editor, without it
  schema                             the protocol, as JSON Schema
  demo                               the main job, on a small broken project
  uninstall [--purge]                what to remove, and how

Options, before or after the command
  --provider NAME                    a profile of the configuration, or practice
  --model NAME                       the model, as its endpoint calls it
  --base-url URL                     the endpoint of the chosen profile
  --approval-policy POLICY           on-risk: ask before changes (as usual)
                                     always: ask about everything, reading too
                                     never: read only, all changes are denied
  --config FILE                      one more configuration file
  --scv-home DIR                     where sessions and configuration live (~/.scv)
  --version, --help                  also: scv COMMAND --help

Risks are read_only, filesystem, process, delegate and network.

Examples
  scv --provider practice exec "list then read README.md"
  scv exec --allow filesystem,process "make the tests pass"
  git diff | scv exec -              the prompt comes from standard input
"""

EXEC = """\
Usage: scv exec [OPTIONS] PROMPT

Run one prompt in the current directory. The answer goes to standard output, all else
to standard error. PROMPT - reads the prompt from standard input.

Nobody is there to ask, so what needs an approval is denied, unless you allow it:
  --allow RISK,...   allow these: filesystem, process, delegate, network, read_only
  --yes              allow everything

  --json             print events instead, one JSON object a line
  --session ID       go on with a session (scv sessions list shows them)
  --attach           use the running server (scv run), and start no other

Exit status: 0 when the turn completed, 1 when not, 2 for a wrong command line or
configuration, 130 after Ctrl+C.

Example: scv exec --allow filesystem,process "make the tests pass"
Options of every command: scv --help
"""

RUN = """\
Usage: scv run [OPTIONS]

Serve this home in the foreground, on a socket in it that only you can reach. All front
ends that attach share their sessions: a closed window ends nothing, and a question can
be answered from any of them. `scv` and `scv sessions` use this server while it runs.

Ctrl+C or SIGTERM ends it: running turns are cancelled, and everything is on disk.
Exit status: 0 after that, 1 when another process already serves this home.

Options of every command: scv --help
"""

ATTACH = """\
Usage: scv attach --stdio

Join standard input and output to the server that runs for this home (scv run). Editors
start this by themselves; to reach another machine: ssh HOST scv attach --stdio
Exit status: 0 when the connection has ended, 1 when no server runs.

Options of every command: scv --help
"""

SERVER = """\
Usage: scv server --stdio

Serve one editor on standard input and output: JSON-RPC in frames as in the Language
Server Protocol. Editors start this by themselves. Ends with its input.

Options of every command: scv --help
"""

SESSIONS = """\
Usage: scv sessions COMMAND [OPTIONS]

What was said and done. An ID may be the beginning of one.

  list [--here] [--limit N]       the most recently used first
  show [ID]                       a transcript; the newest of this directory without ID
  search TEXT [--limit N]         in prompts, answers and titles; 1 without a hit
  fork ID [--at ITEM] [--title T] copy it, up to an item; prints the id of the copy
  delete ID [--force] [--yes]     remove it for good, after asking in a terminal;
                                  --force: also while a turn runs, which is cancelled
                                  --yes: do not ask; ID must then be whole
  export ID FILE                  write it into a new file that only you can read
  import FILE                     make a session of such a file; prints its id

list, show and search take --json. fork and delete never change files of the project.
show reads a session while another process works in it; fork, delete and export cannot.

Example: scv sessions search "flaky test"
Options of every command: scv --help
"""

APPROVALS = """\
Usage: scv approvals list [--json]
       scv approvals answer ID allow|deny [--feedback TEXT]

Questions that wait in the running server (scv run), from any of its front ends.

list shows each with its risk and the whole of what would run. answer shows it again
and decides exactly that; what changed since is asked anew, under another ID.
--feedback TEXT tells the model why.

Exit status: 0 when your answer decided, 1 when not: somebody else was first (it says
who and when), or no server runs.

Example: scv approvals answer ID deny --feedback "use the test database"
Options of every command: scv --help
"""
