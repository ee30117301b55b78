module github.com/serin-dev/serin/playground/modules/gatewayapi

go 1.26.0

require sigs.k8s.io/gateway-api v1.4.1 // read for its config/crd/standard only
