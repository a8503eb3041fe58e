// The table of mixers of one instruction set. A new mixer: one file beside this one, one row here, its name in config_validate.
#include "model/kernels/simd.h"
#include "model/mixers/mixer.h"

extern const Mixer ISA_NAME(lattice_mixer);
extern const Mixer *const ISA_NAME(mixer_table)[];

const Mixer *const ISA_NAME(mixer_table)[] = {
    &ISA_NAME(lattice_mixer),
    NULL,
};
