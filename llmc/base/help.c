#define _GNU_SOURCE
#include "llmc/base/help.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "llmc/base/help_forms.h"

enum { COLUMNS_STANDARD = 80, COLUMNS_MIN = 40, COLUMNS_MAX = 1000, TEXT_COLUMN_MAX = 40, INDENT = 8 };

int help_columns(FILE *out)
{
    struct winsize size = {.ws_col = 0};
    const char *told = getenv("COLUMNS");
    int columns = 0;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0) {
        columns = size.ws_col;
    }
    if (columns <= 0 && told) {
        columns = atoi(told);
    }
    if (columns <= 0 || columns > COLUMNS_MAX) {
        return COLUMNS_STANDARD;
    }
    return columns < COLUMNS_MIN ? COLUMNS_MIN : columns;
}

/* A place in a line of the terminal. */
typedef struct Pen {
    FILE *out;
    int columns, indent, column;
} Pen;

static void break_line(Pen *pen)
{
    putc('\n', pen->out);
    pen->column = 0;
}

/* As many columns as characters: what is printed here is ASCII, or near. */
static int width_of(const char *text, size_t bytes)
{
    int width = 0;
    for (size_t i = 0; i < bytes; i++) {
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return width;
}

/* A word, on the next line where it does not fit on this one. */
static void print_word(Pen *pen, const char *word, size_t bytes)
{
    int width = width_of(word, bytes);
    int is_first = pen->column <= pen->indent;
    if (!is_first && pen->column + 1 + width > pen->columns) {
        break_line(pen);
        is_first = 1;
    }
    if (pen->column < pen->indent) {
        fprintf(pen->out, "%*s", pen->indent - pen->column, "");
        pen->column = pen->indent;
    }
    fprintf(pen->out, "%s%.*s", is_first ? "" : " ", (int)bytes, word);
    pen->column += width + !is_first;
}

static void print_words(Pen *pen, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        size_t word_bytes = 0;
        while (i + word_bytes < bytes && text[i + word_bytes] != ' ') {
            word_bytes++;
        }
        if (word_bytes > 0) {
            print_word(pen, text + i, word_bytes);
        }
        i += word_bytes + 1;
    }
}

/* Paragraphs; lines that begin with a blank stay as they are. */
static void print_text(Pen *pen, const char *text)
{
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        int is_own_line = text[0] == ' ' || bytes == 0;
        if (is_own_line && pen->column > 0) {
            break_line(pen);
        }
        if (is_own_line) {
            fprintf(pen->out, "%.*s\n", (int)bytes, text);
        } else {
            print_words(pen, text, bytes);
        }
        text += bytes + (text[bytes] == '\n');
    }
    if (pen->column > 0) {
        break_line(pen);
    }
}

/* How wide "  --name=shown" is. */
static int head_width(const HelpRow *row)
{
    return 2 + (int)strlen(row->name) + (row->shown[0] != '\0') + (int)strlen(row->shown);
}

/* Where texts begin: behind the widest head, or, where that leaves them little room, below it. */
static int find_text_column(const HelpPage *page, int columns)
{
    int widest = 0;
    for (int i = 0; i < page->row_count; i++) {
        int width = head_width(&page->rows[i]);
        widest = width > widest ? width : widest;
    }
    int column = widest + 2 < TEXT_COLUMN_MAX ? widest + 2 : TEXT_COLUMN_MAX;
    return columns >= 2 * column ? column : INDENT;
}

static void print_row(FILE *out, const HelpRow *row, int text_column, int columns)
{
    Pen pen = {out, columns, text_column, head_width(row)};
    int is_long = row->name[1] == '-';
    fprintf(out, "  %s%s%s", row->name, !row->shown[0] ? "" : is_long ? "=" : " ", row->shown);
    if (pen.column + 2 > text_column) {
        break_line(&pen);
    }
    print_words(&pen, row->text, strlen(row->text));
    if (row->range[0]) {
        char range[160];
        snprintf(range, sizeof(range), "(%s)", row->range);
        print_word(&pen, range, strlen(range));
    }
    break_line(&pen);
}

/* All rows, or those of one section. Returns how many. */
static int print_rows(FILE *out, const HelpPage *page, const char *section, int columns)
{
    const char *last = "";
    int count = 0, text_column = find_text_column(page, columns);
    for (int i = 0; i < page->row_count; i++) {
        const HelpRow *row = &page->rows[i];
        if (section[0] && strcmp(section, row->section) != 0) {
            continue;
        }
        if (strcmp(last, row->section) != 0) {
            fprintf(out, "%s%s\n", count > 0 || !section[0] ? "\n" : "", row->section);
            last = row->section;
        }
        print_row(out, row, text_column, columns);
        count++;
    }
    return count;
}

static void print_texts(Pen *pen, const HelpText *texts)
{
    for (const HelpText *text = texts; text->title; text++) {
        putc('\n', pen->out);
        if (text->title[0]) {
            fprintf(pen->out, "%s\n", text->title);
        }
        print_text(pen, text->text);
    }
}

static void print_whole(FILE *out, const HelpPage *page, int columns)
{
    Pen pen = {out, columns, 0, 0};
    const char *begin = "usage: ";
    for (const char *line = page->synopsis; *line;) {
        size_t bytes = strcspn(line, "\n");
        fprintf(out, "%s%.*s\n", begin, (int)bytes, line);
        line += bytes + (line[bytes] == '\n');
        begin = "       ";
    }
    print_texts(&pen, page->before);
    print_rows(out, page, "", columns);
    print_texts(&pen, page->after);
}

static int fail_form(const HelpPage *page, const char *form, Error *error)
{
    char sections[256] = "";
    const char *last = "";
    for (int i = 0; i < page->row_count; i++) {
        const char *section = page->rows[i].section;
        size_t used = strlen(sections);
        if (strcmp(last, section) != 0 && used + strlen(section) + 2 < sizeof(sections)) {
            snprintf(sections + used, sizeof(sections) - used, "%s%s", used > 0 ? "|" : "", section);
        }
        last = section;
    }
    return error_set(error, "--help=%.60s: expected %s, or --help alone", form, sections);
}

int help_print(FILE *out, const HelpPage *page, const char *form, int columns, Error *error)
{
    if (strcmp(form, "") == 0) {
        print_whole(out, page, columns);
    } else if (strcmp(form, "man") == 0) {
        help_print_man(out, page);
    } else if (strcmp(form, "bash") == 0) {
        help_print_bash(out, page);
    } else if (print_rows(out, page, form, columns) == 0) {
        return fail_form(page, form, error);
    }
    return 0;
}
