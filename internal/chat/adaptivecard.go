package chat

// AdaptiveMessage is a message with one Adaptive Card, for the workflows of Microsoft Teams.
type AdaptiveMessage struct {
	Type        string               `json:"type"`
	Attachments []adaptiveAttachment `json:"attachments"`
}

type adaptiveAttachment struct {
	ContentType string `json:"contentType"`
	Content     any    `json:"content"`
}

// NewAdaptiveMessage wraps a card, an AdaptiveCard or raw JSON.
func NewAdaptiveMessage(card any) AdaptiveMessage {
	return AdaptiveMessage{
		Type:        "message",
		Attachments: []adaptiveAttachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: card}},
	}
}

// AdaptiveCard is a card of elements.
type AdaptiveCard struct {
	Schema  string            `json:"$schema"`
	Type    string            `json:"type"`
	Version string            `json:"version"`
	Body    []AdaptiveElement `json:"body"`
}

// NewAdaptiveCard returns a card of version 1.4, which all clients of Teams display.
func NewAdaptiveCard(body []AdaptiveElement) AdaptiveCard {
	return AdaptiveCard{Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", Body: body}
}

// AdaptiveElement is a TextBlock or a FactSet.
type AdaptiveElement struct {
	Type   string         `json:"type"`
	Text   string         `json:"text,omitempty"`
	Weight string         `json:"weight,omitempty"`
	Size   string         `json:"size,omitempty"`
	Color  string         `json:"color,omitempty"`
	Subtle bool           `json:"isSubtle,omitempty"`
	Wrap   bool           `json:"wrap,omitempty"`
	Facts  []AdaptiveFact `json:"facts,omitempty"`
}

// AdaptiveFact is a titled value.
type AdaptiveFact struct {
	Title string `json:"title"`
	Value string `json:"value"`
}
