# embed.awk - turns the templates of snippets into C: awk -f embed.awk TEMPLATE.H TEMPLATE... >snippet_templates.c
#
# A template is Python (NAME.py.in) or C (NAME.c.in). Two things in a template are not copied as they are:
#
#     {NAME}              a hole, in upper case: a value of the checkpoint. Python's own braces hold lower case.
#     % ...               a line that begins with a percent sign:
#     % if NAME           the lines up to the matching elif, else or end are copied where the condition holds; also
#     % if not NAME       "elif NAME" and "else". Conditions nest; blanks after the percent sign show how deep.
#     % each NAME         the lines up to "end" are copied once for each item of a list
#     % end               ends the innermost if or each
#     % include FILE      the lines of another template of this directory
#     % # ...             a comment
#
# TEMPLATE.H lists the names: CKPT__PY_NAME is a hole of the Python templates, CKPT__PY_IF_NAME a condition,
# CKPT__PY_EACH_NAME a list; those of the C templates begin with CKPT__C_. An unknown name, an unknown line and an
# unmatched end are errors of the build, with the file and the line.

function fail(why)
{
    printf "%s:%d: %s\n", file, line, why >"/dev/stderr"
    failed = 1
}

function known_as(name, word)
{
    if (!(name in known))
        fail("unknown " word ": " header " has no " name)
    return name
}

function op(kind, what, text)
{
    printf "    {CKPT__SNIPPET_%s, %s, %s},\n", kind, what, text
}

# As a literal of C. A question mark is escaped against trigraphs.
function quoted(text,    out, i, c)
{
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        out = out (c == "\\" || c == "\"" || c == "?" ? "\\" : "") c
    }
    return "\"" out "\\n\""
}

function piece(text,    literal)
{
    literal = quoted(text)
    if (text != "")
        op("TEXT", 0, substr(literal, 1, length(literal) - 3) "\"")
}

function copied(text)
{
    while (match(text, /[{][A-Z][A-Za-z0-9_]*[}]/)) {
        piece(substr(text, 1, RSTART - 1))
        op("HOLE", known_as("CKPT__" language "_" substr(text, RSTART + 1, RLENGTH - 2), "hole"), "NULL")
        text = substr(text, RSTART + RLENGTH)
    }
    op("TEXT", 0, quoted(text))
}

function deeper(word)
{
    open[++depth] = word
    if (depth > 8) # DEPTH of template.c
        fail("nested too deep")
}

function control(text, directory,    word, count)
{
    sub(/^%[ ]*/, "", text)
    count = split(text, word, " ")
    if (word[1] == "#")
        return
    if (word[1] == "include" && count == 2)
        template(directory word[2], directory)
    else if (word[1] == "if" && (count == 2 || (count == 3 && word[2] == "not"))) {
        deeper("if")
        op(count == 2 ? "IF" : "IF_NOT", known_as("CKPT__" language "_IF_" toupper(word[count]), "condition"), "NULL")
    } else if (word[1] == "each" && count == 2) {
        deeper("each")
        op("EACH", known_as("CKPT__" language "_EACH_" toupper(word[2]), "list"), "NULL")
    } else if (word[1] == "elif" && count == 2 && open[depth] == "if")
        op("ELIF", known_as("CKPT__" language "_IF_" toupper(word[2]), "condition"), "NULL")
    else if (word[1] == "else" && count == 1 && open[depth] == "if") {
        open[depth] = "else"
        op("ELSE", 0, "NULL")
    } else if (word[1] == "end" && count == 1 && depth > 0) {
        depth--
        op("END", 0, "NULL")
    } else
        fail("unknown or unmatched line: % " text)
}

# `file` and `line` are for messages. An included file comes back to those of the file that includes it.
function template(path, directory,    text, got, outer, outer_line, outer_depth)
{
    outer = file; outer_line = line; outer_depth = depth
    file = path; line = 0
    while ((got = (getline text <path)) > 0) {
        line++
        if (substr(text, 1, 1) == "%")
            control(text, directory)
        else
            copied(text)
    }
    if (depth != outer_depth)
        fail("an if or each without its end")
    close(path)
    file = outer; line = outer_line; depth = outer_depth
    if (got < 0)
        fail("cannot read " path)
}

BEGIN {
    file = header = ARGV[1]
    while ((getline text <header) > 0)
        while (match(text, /CKPT__(PY|C)_[A-Z0-9_]+/)) {
            known[substr(text, RSTART, RLENGTH)] = 1
            text = substr(text, RSTART + RLENGTH)
        }
    name = header
    sub(/^src\//, "", name)
    print "/* Made by embed.awk from the templates of snippets. */"
    print "#include \"" name "\"\n"
    for (i = 2; i < ARGC; i++) {
        name = directory = ARGV[i]
        sub(/[^\/]*$/, "", directory)
        sub(/.*\//, "", name)
        language = name ~ /\.py\.in$/ ? "PY" : "C"
        sub(/\.in$/, "", name)
        list = list "    {\"" name "\", "
        gsub(/[^A-Za-z0-9_]/, "_", name)
        list = list "ckpt__snippet_" name "},\n"
        print "const ckpt__snippet_op ckpt__snippet_" name "[] = {"
        template(ARGV[i], directory)
        print "    {CKPT__SNIPPET_DONE, 0, NULL},\n};\n"
    }
    print "const ckpt__snippet_template ckpt__snippet_templates[] = {\n" list "    {NULL, NULL},\n};"
    exit failed
}
