# Prints the lines of the input whose prefix overlaps the prefix `want`. An input line is
# `ADDRESS[/LENGTH] text...`; both families; default routes, also the halves and
# quarters a VPN writes them as, are not overlaps.

function hex_bits(word,    i, at, out)
{
	word = tolower(word)
	while (length(word) < 4)
		word = "0" word
	for (i = 1; i <= 4; i++) {
		at = index("0123456789abcdef", substr(word, i, 1)) - 1
		out = out int(at / 8) % 2 int(at / 4) % 2 int(at / 2) % 2 at % 2
	}
	return out
}

function byte_bits(n,    i, out)
{
	for (i = 0; i < 8; i++) {
		out = n % 2 out
		n = int(n / 2)
	}
	return out
}

# The bits of a prefix as a text of 0 and 1, "" where it is none.
function prefix_bits(prefix,    at, len, parts, i, n, left, right, have, out)
{
	at = index(prefix, "/")
	len = at ? substr(prefix, at + 1) : ""
	if (at)
		prefix = substr(prefix, 1, at - 1)
	sub(/%.*/, "", prefix)
	if (prefix ~ /^[0-9.]+$/) {
		n = split(prefix, parts, ".")
		for (i = 1; i <= 4; i++)
			out = out byte_bits(i <= n ? parts[i] : 0)
	} else if (prefix ~ /^[0-9a-fA-F:]+$/ && prefix ~ /:/) {
		at = index(prefix, "::")
		left = at ? substr(prefix, 1, at - 1) : prefix
		right = at ? substr(prefix, at + 2) : ""
		n = left == "" ? 0 : split(left, parts, ":")
		for (i = 1; i <= n; i++)
			out = out hex_bits(parts[i])
		n = right == "" ? 0 : split(right, parts, ":")
		have = length(out) / 16 + n
		for (i = have; i < 8; i++)
			out = out hex_bits("0")
		for (i = 1; i <= n; i++)
			out = out hex_bits(parts[i])
	} else {
		return ""
	}
	return len == "" ? out : substr(out, 1, len)
}

function family(prefix)
{
	return prefix ~ /:/ ? 6 : 4
}

BEGIN { mine = prefix_bits(want) }
{
	other = family($1) == family(want) ? prefix_bits($1) : ""
	n = length(mine) < length(other) ? length(mine) : length(other)
	if (n > 2 && substr(mine, 1, n) == substr(other, 1, n))
		print
}
