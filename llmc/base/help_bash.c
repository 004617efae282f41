#include <string.h>

#include "llmc/base/help_forms.h"

/* Names of the rows of one kind, as a pattern of `case`. Prints nothing and returns 0 where there is none. */
static int print_names(FILE *out, const HelpPage *page, HelpValue value)
{
    int count = 0;
    for (int i = 0; i < page->row_count; i++) {
        if (page->rows[i].value == value) {
            fprintf(out, "%s%s", count++ ? " | " : "    ", page->rows[i].name);
        }
    }
    if (count > 0) {
        fputs(")\n", out);
    }
    return count;
}

static void print_choices(FILE *out, const HelpPage *page)
{
    for (int i = 0; i < page->row_count; i++) {
        const HelpRow *row = &page->rows[i];
        if (row->value != HELP_CHOICE) {
            continue;
        }
        fprintf(out, "    %s)\n        words='", row->name);
        for (const char *c = row->choices; *c; c++) {
            putc(*c == '|' ? ' ' : *c, out);
        }
        fputs("'\n        ;;\n", out);
    }
}

/* Names, with an `=` where a value must follow. */
static void print_all_names(FILE *out, const HelpPage *page)
{
    fputs("        words='--help --version", out);
    for (int i = 0; i < page->row_count; i++) {
        const HelpRow *row = &page->rows[i];
        int needs_value = row->value != HELP_NOTHING && row->value != HELP_BOOL && row->name[1] == '-';
        fprintf(out, " %s%s", row->name, needs_value ? "=" : "");
    }
    fputs("'\n", out);
}

static void print_sections(FILE *out, const HelpPage *page)
{
    const char *section = "";
    fputs("    --help)\n        words='", out);
    for (int i = 0; i < page->row_count; i++) {
        if (strcmp(section, page->rows[i].section) != 0) {
            fprintf(out, "%s%s", section[0] ? " " : "", page->rows[i].section);
            section = page->rows[i].section;
        }
    }
    fputs("'\n        ;;\n", out);
}

void help_print_bash(FILE *out, const HelpPage *page)
{
    int name_bytes = (int)strcspn(page->programs, " ");
    fprintf(out,
            "# Completion for bash, made from the table of options: source it, or put it into\n"
            "# bash-completion's folder.\n"
            "_%.*s()\n"
            "{\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} option= words= "
            "is_apart=\n"
            "    COMPREPLY=()\n"
            "    # Readline takes --name=value apart at the `=`.\n"
            "    if [ \"$word\" = = ]; then\n"
            "        option=$before word=\n"
            "    elif [ \"$before\" = = ]; then\n"
            "        option=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "    elif [[ $before == -?* && $word != -* ]]; then\n"
            "        option=$before is_apart=1\n"
            "    fi\n"
            "    case $option in\n",
            name_bytes, page->programs);
    print_choices(out, page);
    if (print_names(out, page, HELP_BOOL)) {
        fputs("        words='true false'\n"
              "        # Alone it is true, and a config file may follow.\n"
              "        [ -z \"$is_apart\" ] || option=\n"
              "        ;;\n",
              out);
    }
    if (print_names(out, page, HELP_FOLDER)) {
        fputs("        compopt -o filenames 2>/dev/null\n"
              "        mapfile -t COMPREPLY < <(compgen -d -- \"$word\")\n"
              "        return\n"
              "        ;;\n",
              out);
    }
    if (print_names(out, page, HELP_WORD)) {
        fputs("        return\n        ;;\n", out);
    }
    print_sections(out, page);
    fputs("    esac\n"
          "    if [[ $word == -* && -z $option ]]; then\n",
          out);
    print_all_names(out, page);
    fputs("    elif [ -z \"$option\" ] || [ -z \"$words\" ]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "    fi\n"
          "    if [ -n \"$words\" ]; then\n"
          "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "    fi\n"
          "    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null\n"
          "}\n",
          out);
    fprintf(out, "complete -F _%.*s %s\n", name_bytes, page->programs, page->programs);
}
