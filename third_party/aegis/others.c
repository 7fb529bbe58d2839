/* aegis_init of libaegis chooses an implementation for each cipher of the family. AEGIS-128L alone is
   used here (aegis.BUILD), and is a small part of what there is to compile. */

int aegis128x2_pick_best_implementation(void) { return 0; }
int aegis128x4_pick_best_implementation(void) { return 0; }
int aegis256_pick_best_implementation(void) { return 0; }
int aegis256x2_pick_best_implementation(void) { return 0; }
int aegis256x4_pick_best_implementation(void) { return 0; }
