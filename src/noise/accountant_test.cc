#include "src/noise/accountant.h"
