#pragma once
/* Where things are installed; the build gives SKERRY_LIBEXECDIR. */
#define CONFIG_PATH "/etc/skerry/skerry.yaml"
#define INIT_PATH   SKERRY_LIBEXECDIR "/skerry-init"
