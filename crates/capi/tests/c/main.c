/* Runs the tests of the C interface: main FOLDER [ISA [OPERATIONS]]. Ends by abort if one fails. */
#include "test.h"

const char *isa;
size_t operations = 20000;
const char *folder;

int main(int count, char **arguments)
{
	CHECK(count >= 2);
	folder = arguments[1];
	if (count > 2 && *arguments[2])
		isa = arguments[2];
	if (count > 3)
		operations = strtoul(arguments[3], NULL, 10);
	test_border();
	test_cache();
	test_fib();
	test_partition();
	test_sketch();
	test_copies();
	test_copies_gate();
	test_versioned();
	test_tree();
	return 0;
}
