#include <ctype.h>
#include <string.h>

#include "llmc/base/help_forms.h"

/* Text for roff: dashes are minus signs, backslashes are themselves. */
static void print_escaped(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out);
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        default:
            putc(text[i], out);
        }
    }
}

/* One line of input. A dot or a quote at its beginning would be a request. */
static void print_line(FILE *out, const char *text, size_t bytes)
{
    if (bytes > 0 && (text[0] == '.' || text[0] == '\'')) {
        fputs("\\&", out);
    }
    print_escaped(out, text, bytes);
    putc('\n', out);
}

/* Lines that begin with a blank are examples. */
static void print_text(FILE *out, const char *text)
{
    int is_example = 0;
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        int begins_blank = text[0] == ' ';
        if (begins_blank != is_example) {
            fputs(begins_blank ? ".PP\n.EX\n" : ".EE\n", out);
            is_example = begins_blank;
        }
        if (bytes == 0) {
            fputs(".PP\n", out);
        } else {
            print_line(out, text, bytes);
        }
        text += bytes + (text[bytes] == '\n');
    }
    if (is_example) {
        fputs(".EE\n", out);
    }
}

static void print_capitals(FILE *out, const char *text)
{
    for (; *text; text++) {
        putc(toupper((unsigned char)*text), out);
    }
}

static void print_texts(FILE *out, const HelpText *texts, const char *title)
{
    for (const HelpText *text = texts; text->title; text++) {
        fputs(".SH ", out);
        print_capitals(out, text->title[0] ? text->title : title);
        putc('\n', out);
        print_text(out, text->text);
    }
}

static void print_row(FILE *out, const HelpRow *row)
{
    fputs(".TP\n\\fB", out);
    print_escaped(out, row->name, strlen(row->name));
    fputs("\\fR", out);
    if (row->shown[0]) {
        fputs(row->name[1] == '-' ? "=\\fI" : " \\fI", out);
        print_escaped(out, row->shown, strlen(row->shown));
        fputs("\\fR", out);
    }
    putc('\n', out);
    print_line(out, row->text, strlen(row->text));
    if (row->range[0]) {
        putc('(', out);
        print_escaped(out, row->range, strlen(row->range));
        fputs(")\n", out);
    }
}

void help_print_man(FILE *out, const HelpPage *page)
{
    size_t name_bytes = strcspn(page->programs, " ");
    fputs(".TH ", out);
    for (size_t i = 0; i < name_bytes; i++) {
        putc(toupper((unsigned char)page->programs[i]), out);
    }
    fprintf(out, " 1 \"\" \"%.*s %s\" \"User Commands\"\n.SH NAME\n", (int)name_bytes, page->programs,
            page->version);
    for (const char *program = page->programs; *program;) {
        size_t bytes = strcspn(program, " ");
        fprintf(out, "%s%.*s", program == page->programs ? "" : ", ", (int)bytes, program);
        program += bytes + (program[bytes] == ' ');
    }
    fputs(" \\- ", out);
    print_line(out, page->purpose, strlen(page->purpose));
    fputs(".SH SYNOPSIS\n.nf\n", out);
    for (const char *line = page->synopsis; *line;) {
        size_t bytes = strcspn(line, "\n");
        print_line(out, line, bytes);
        line += bytes + (line[bytes] == '\n');
    }
    fputs(".fi\n", out);
    print_texts(out, page->before, "DESCRIPTION");
    fputs(".SH OPTIONS\n", out);
    if (page->shows_default) {
        fputs("The defaults stand behind the names.\n", out);
    }
    const char *section = "";
    for (int i = 0; i < page->row_count; i++) {
        if (strcmp(section, page->rows[i].section) != 0) {
            section = page->rows[i].section;
            fprintf(out, ".SS %s\n", section);
        }
        print_row(out, &page->rows[i]);
    }
    print_texts(out, page->after, "NOTES");
}
