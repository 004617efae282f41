/* Help: lines that fit the terminal, sections, and what man and bash read. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/help.h"

static const HelpRow rows[] = {
    {"data", "-o", HELP_FOLDER, "FOLDER", NULL, "", "where to write"},
    {"data", "--kind", HELP_CHOICE, "text", "text|json", "text|json", "what a file holds"},
    {"run", "--steps", HELP_WORD, "10", NULL, "0 to 100",
     "how many steps are made, which is told in so many words that no line of any terminal holds them all, "
     "whatever its width: one, two, three, four, five, six, seven, eight"},
    {"run", "--a_name_that_is_longer_than_the_column_of_texts", HELP_WORD, "1", NULL, "", "long"},
    {"run", "--fast", HELP_BOOL, "false", NULL, "true|false", ".dots and 'quotes' and \\backslashes"},
};
static const HelpText before[] = {{"", "Does it.\n\nAn \xc3\xa4rgument is a file."}, {NULL, NULL}};
static const HelpText after[] = {{"Examples", "  it -o out a.txt\n  it b.txt"}, {NULL, NULL}};
static const HelpPage page = {.programs = "it itcu",
                              .version = "1.2",
                              .purpose = "do it",
                              .synopsis = "it [OPTION]... FILE\nit --help",
                              .before = before,
                              .after = after,
                              .rows = rows,
                              .row_count = sizeof(rows) / sizeof(rows[0])};

static char *print(const char *form, int columns)
{
    char *text = NULL;
    size_t bytes = 0;
    Error error;
    FILE *file = open_memstream(&text, &bytes);
    assert_int_equal(help_print(file, &page, form, columns, &error), 0);
    fclose(file);
    return text;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected \"%s\" in \"%s\"", part, text);
    }
}

/* Every word is there in its order, whatever the width, and no line is too long but for one long word. */
static void test_lines_fit_the_terminal(void **state)
{
    (void)state;
    for (int columns = 40; columns <= 240; columns += 20) {
        char *text = print("", columns);
        int widest = 0;
        for (char *line = text; *line; line += strcspn(line, "\n") + 1) {
            int width = (int)strcspn(line, "\n");
            int is_long_name = strncmp(line, "  --a_name", 10) == 0;
            widest = !is_long_name && width > widest ? width : widest;
            assert_true(width == 0 || line[width - 1] != ' ');
        }
        assert_true(widest <= columns && widest > columns - 30);
        for (char *c = text; *c; c++) {
            *c = *c == '\n' ? ' ' : *c;
        }
        char *packed = text;
        for (char *c = text; *c; c++) { /* one blank for many */
            if (*c != ' ' || packed == text || packed[-1] != ' ') {
                *packed++ = *c;
            }
        }
        *packed = '\0';
        assert_contains(text,
                        "usage: it [OPTION]... FILE it --help Does it. An \xc3\xa4rgument is a file. data -o "
                        "FOLDER where to write --kind=text what a file holds (text|json) run --steps=10 how "
                        "many steps are made,");
        assert_contains(text, "seven, eight (0 to 100) --a_name");
        free(text);
    }
}

static void test_sections(void **state)
{
    (void)state;
    char *text = print("data", 80);
    assert_string_equal(text, "data\n"
                              "  -o FOLDER                             where to write\n"
                              "  --kind=text                           what a file holds (text|json)\n");
    free(text);
    Error error;
    assert_int_equal(help_print(stdout, &page, "dat", 80, &error), -1);
    assert_string_equal(error.text, "--help=dat: expected data|run, or --help alone");
}

static void test_man_page(void **state)
{
    (void)state;
    char *text = print("man", 0);
    assert_contains(text, ".TH IT 1 \"\" \"it 1.2\" \"User Commands\"\n.SH NAME\nit, itcu \\- do it\n");
    assert_contains(text, ".SH DESCRIPTION\nDoes it.\n.PP\nAn ");
    assert_contains(text, ".SS run\n.TP\n\\fB\\-\\-steps\\fR=\\fI10\\fR\nhow many");
    assert_contains(text, ".TP\n\\fB\\-o\\fR \\fIFOLDER\\fR\nwhere to write\n");
    assert_contains(text, "\n\\&.dots and \\(aqquotes\\(aq and \\ebackslashes\n(true|false)\n");
    assert_contains(text, ".SH EXAMPLES\n.PP\n.EX\n  it \\-o out a.txt\n  it b.txt\n.EE\n");
    free(text);
}

/* What readline would offer: bash runs the completion for words of a command line, where there are a file
 * `only` and a folder `other`. */
static void assert_offers(const char *words, const char *expected)
{
    char command[512], found[512] = "";
    snprintf(command, sizeof(command),
             "bash -c '. ./completion; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _it; "
             "echo \"${COMPREPLY[*]}\"' 2>&1",
             words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t bytes = fread(found, 1, sizeof(found) - 1, pipe);
    assert_int_equal(pclose(pipe), 0);
    found[bytes ? bytes - 1 : 0] = '\0';
    if (strcmp(found, expected) != 0) {
        fail_msg("%s: expected \"%s\", found \"%s\"", words, expected, found);
    }
}

static void write_completion(void)
{
    Error error;
    FILE *file = fopen("completion", "w");
    assert_non_null(file);
    assert_int_equal(help_print(file, &page, "bash", 80, &error), 0);
    fclose(file);
}

static void test_completion_for_bash(void **state)
{
    (void)state;
    char folder[] = "test_help_XXXXXX", before_it[4096];
    assert_non_null(getcwd(before_it, sizeof(before_it)));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    write_completion();
    assert_int_equal(mkdir("other", 0777) | close(creat("only", 0666)), 0);
    assert_offers("it --st", "--steps=");
    assert_offers("it --",
                  "--help --version --kind= --steps= --a_name_that_is_longer_than_the_column_of_texts= "
                  "--fast");
    assert_offers("it --kind = \"\"", "text json");
    assert_offers("it --kind =", "text json");
    assert_offers("it --kind = j", "json");
    assert_offers("it --kind j", "json");
    assert_offers("it --fast = t", "true");
    assert_offers("it --steps = 1", "");
    assert_offers("it --help = d", "data");
    assert_offers("it onl", "only");
    assert_offers("it --fast onl", "only"); /* alone it is true, and a file may follow */
    assert_offers("it --fast tr", "true");
    assert_offers("it -o o", "other");
    assert_offers("it --unknown = onl", "only");
    assert_int_equal(remove("only") | remove("other") | remove("completion") | chdir(before_it), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_width_of_the_terminal(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    static const struct {
        const char *told;
        int columns;
    } cases[] = {{"100", 100}, {"10", 40}, {"0", 80}, {"wide", 80}, {"99999", 80}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv("COLUMNS", cases[i].told, 1);
        assert_int_equal(help_columns(file), cases[i].columns);
    }
    unsetenv("COLUMNS");
    assert_int_equal(help_columns(file), 80);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_fit_the_terminal),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_man_page),
        cmocka_unit_test(test_completion_for_bash),
        cmocka_unit_test(test_width_of_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
