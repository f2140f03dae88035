# Two front doors; both do all set-up on a fresh machine.
#   make demo   VC-Attention on real video-transformer activations, beside the peers' recipes
#   make test   every test a machine without a GPU can run
.PHONY: demo test

demo:
	@scripts/bootstrap
	@scripts/demo

test:
	@scripts/bootstrap
	@scripts/test
