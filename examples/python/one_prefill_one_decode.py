"""1P1D: one engine computes prompts, another one generates. KV goes from the first to the second while it is computed."""

import baton


class OnePrefillOneDecode:
    async def route(self, request, fleet):
        prefill, decode = fleet.engine("prefill-0"), fleet.engine("decode-0")
        # The last token of the prompt stays with the engine that generates: the first new token is sampled from it.
        room = await decode.prep_recv(request, end=-1)
        kv = prefill.remote_send(request, to=room)
        return await decode.start_generate(request, room, fed_by=kv)


if __name__ == "__main__":
    baton.Deployment(prefill=1, decode=1, strategy=OnePrefillOneDecode()).serve()
