#pragma once
/*
 * Reason words that arrive as text. `struct err` keeps its reason by reference for ever, so a word
 * that came over a socket is looked up here and the table's copy is handed out.
 *
 * For peers we trust (the keeper) only: whoever can send words can fill the table.
 */

enum { WORDS_MAX = 64, WORD_SIZE = 32 };

/* A static copy of `word` (a-z, 0-9, '_', shorter than WORD_SIZE); `otherwise`, itself static, for
 * any other text and once the table is full. Callable from any thread. */
const char *word_intern(const char *word, const char *otherwise);
