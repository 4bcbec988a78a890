#include "daemon/backend/words.h"

#include <pthread.h>
#include <string.h>

#include "base/banned.h"
#include "base/str.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char words[WORDS_MAX][WORD_SIZE];
static unsigned count;

const char *word_intern(const char *word, const char *otherwise)
{
	size_t len = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
	const char *found = otherwise;

	if (len == 0 || len >= WORD_SIZE || word[len])
		return otherwise;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count && found == otherwise; i++)
		if (str_eq(words[i], word))
			found = words[i];
	if (found == otherwise && count < WORDS_MAX && str_copy(words[count], WORD_SIZE, word))
		found = words[count++];
	pthread_mutex_unlock(&lock);
	return found;
}
