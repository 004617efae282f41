/* The notice: a number that any rank may post for all, outside of collectives. The monitor's beats carry it.
 */
#ifndef LLMC_COMM_NOTICE_H
#define LLMC_COMM_NOTICE_H

/* The largest that this rank has posted or heard of; 0 until then. On any thread. */
int notice_read(void);

/* Makes it at least this. */
void notice_raise(int notice);

#endif
