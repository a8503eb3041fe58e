#include "training/sample.h"

#include "infer/sampler.h"
#include "infer/session.h"

static void write_token(FILE *out, const Tokenizer *tokenizer, int32_t token)
{
    size_t length = 0;
    const char *bytes = tokenizer_token(tokenizer, token, &length);
    for (size_t i = 0; bytes != NULL && i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        fputc((c < 32 && c != '\n') || c == 127 ? ' ' : c, out);
    }
}

int sample_text(FILE *out, const Model *model, const Tokenizer *tokenizer, uint64_t seed, Error *error)
{
    SamplerOptions options;
    Sampler sampler;
    sampler_defaults(&options);
    options.temperature = SAMPLE_TEMPERATURE;
    if (sampler_create(&sampler, &options, (size_t)model->config.vocab_size, seed, 0, error)) {
        return -1;
    }
    Session *session = session_create(model, 1, 1, error);
    if (session == NULL || session_reserve(session, SAMPLE_TOKENS, error)) {
        session_free(session);
        sampler_free(&sampler);
        return -1;
    }
    int32_t end = tokenizer_end_of_text(tokenizer), token = end;
    int failed = 0;
    for (int i = 0; i < SAMPLE_TOKENS && failed == 0 && (i == 0 || token != end); i++) {
        session_feed(session, &token, 1);
        failed = sampler_sample(&sampler, &token, session_logits(session, 0), error);
        if (failed == 0 && token != end) {
            write_token(out, tokenizer, token);
        }
    }
    fputc('\n', out);
    session_free(session);
    sampler_free(&sampler);
    return failed;
}
