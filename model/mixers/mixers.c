// The table of mixers of one instruction set. A new mixer: one file beside this one, one row here.
#include "model/kernels/simd.h"
#include "model/mixers/mixer.h"

extern const Mixer ISA_NAME(lattice_mixer), ISA_NAME(lattice_forms_mixer), ISA_NAME(linear_mixer), ISA_NAME(mamba2_mixer), ISA_NAME(gla_mixer);
extern const Mixer ISA_NAME(delta_mixer), ISA_NAME(gated_delta_mixer), ISA_NAME(output_norm_mixer), ISA_NAME(ttt_mixer), ISA_NAME(attention_mixer);
extern const Mixer *const ISA_NAME(mixer_table)[];

const Mixer *const ISA_NAME(mixer_table)[] = {
    &ISA_NAME(lattice_mixer),
    &ISA_NAME(lattice_forms_mixer),
    &ISA_NAME(linear_mixer),
    &ISA_NAME(mamba2_mixer),
    &ISA_NAME(gla_mixer),
    &ISA_NAME(delta_mixer),
    &ISA_NAME(gated_delta_mixer),
    &ISA_NAME(output_norm_mixer),
    &ISA_NAME(ttt_mixer),
    &ISA_NAME(attention_mixer),
    NULL,
};
