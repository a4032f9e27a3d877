/* Statuses, messages, hashes, bytes. */
#include "test.h"

void test_border(void)
{
	CHECK(strcmp(overbank_last_error(), "") == 0);
	CHECK(strcmp(overbank_strerror(OVERBANK_OK), "done") == 0);
	for (int status = OVERBANK_OK; status <= OVERBANK_DECLINED; status++)
		CHECK(!strstr(overbank_strerror(status), "no status"));
	CHECK(strstr(overbank_strerror(OVERBANK_DECLINED + 1), "no status"));
	CHECK(strstr(overbank_strerror(INT32_MIN), "no status"));

	int major, minor, patch, end = 0;
	const char *version = overbank_version();
	CHECK(sscanf(version, "%d.%d.%d%n", &major, &minor, &patch, &end) == 3 && !version[end]);

	const uint8_t key[] = "thirteen bytes";
	CHECK(overbank_hash(key, 13, 1) == overbank_hash(key, 13, 1));
	CHECK(overbank_hash(key, 13, 1) != overbank_hash(key, 13, 2));
	CHECK(overbank_hash(key, 13, 1) != overbank_hash(key, 12, 1));
	CHECK(overbank_hash(NULL, 0, 1) == overbank_hash(key, 0, 1));
	CHECK(overbank_hash(NULL, 13, 1) == 0);
	CHECK(strstr(overbank_last_error(), "key is NULL"));
	CHECK(overbank_hash(key, SIZE_MAX, 1) == 0);
	CHECK(strstr(overbank_last_error(), "exceed"));
	/* Of any alignment. */
	uint8_t askew[14];
	memcpy(askew + 1, key, 13);
	CHECK(overbank_hash(askew + 1, 13, 1) == overbank_hash(key, 13, 1));

	struct overbank_hash128 hash = overbank_hash_128(key, 13, 1);
	struct overbank_hash128 other = overbank_hash_128(key, 13, 2);
	CHECK(hash.low && hash.high && (hash.low != other.low || hash.high != other.high));
	other = overbank_hash_128(askew + 1, 13, 1);
	CHECK(hash.low == other.low && hash.high == other.high);
	/* XXH3's own answer for no bytes and seed 0. */
	hash = overbank_hash_128(NULL, 0, 0);
	CHECK(hash.low == 0x6001c324468d497f && hash.high == 0x99aa06d3014798d8);
	hash = overbank_hash_128(NULL, 13, 1);
	CHECK(hash.low == 0 && hash.high == 0);

	CHECK(overbank_mix(0) == 0xe220a8397b1dcdaf && overbank_mix(1) != overbank_mix(2));

	overbank_bytes_free(NULL);
	struct overbank_bytes bytes = {NULL, 0};
	overbank_bytes_free(&bytes);
	overbank_bytes_free(ASKEW(struct overbank_bytes, &bytes));
	CHECK(strstr(overbank_last_error(), "bytes is not aligned"));
}
