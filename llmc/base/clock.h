/* Time for measuring, never for deciding. */
#ifndef LLMC_BASE_CLOCK_H
#define LLMC_BASE_CLOCK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Milliseconds on a clock that never goes back. */
double clock_ms(void);

#ifdef __cplusplus
}
#endif
#endif
